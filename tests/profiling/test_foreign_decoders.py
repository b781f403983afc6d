"""Whole runs on decoders that edgeprof did not write, and a death for want of memory."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.errors import EnvironmentFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.recorder import record
from edgeprof.recipe import Recipe

Folders = dict[str, DecoderFolder]


def test_a_folder_of_optimum_s_runs_like_any_other(
    recipe: Recipe, optimum: DecoderFolder, tmp_path: Path, heard: Any
) -> None:
    """As its own draft: every token that was drafted stands, the cache rolled back or not."""
    short = replace(recipe, repeats=1, prompts=recipe.prompts[:1])
    both = {"t": optimum, "d": optimum}
    session = record(short, both, tmp_path / "s.sqlite", progress=heard)
    assert session.info.complete
    model = session.info.models["t"]
    assert (model.vocab_size, model.capacity_tokens, model.layers) == (300, 250, 2)
    agreement = model.agreement
    assert agreement is not None and agreement.after_rollback == 0
    legs = {leg.id for leg in session.legs if leg.variant == "t+d k=2"}
    drafted = [r for r in session.rounds if r.leg_id in legs and r.drafted]
    assert drafted and all(r.accepted == r.drafted for r in drafted)
    assert not [event for event in session.events if event.kind == "divergence"]


def test_r06_a_decoder_that_dies_for_want_of_memory_has_an_exit_code_of_its_own(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "import os, sys\n"
        "print('NvMapMemAllocInternalTagged: 1075072515 error 12', file=sys.stderr, flush=True)\n"
        "os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="NvMapMemAllocInternalTagged") as caught:
        record(recipe, folders, tmp_path / "out" / "s.sqlite", progress=heard)
    message = str(caught.value)
    assert message.startswith("the decoder ran out of memory: ")
    assert "are available" in message and "a reboot frees fragmented memory" in message
    assert caught.value.exit_code == 3
