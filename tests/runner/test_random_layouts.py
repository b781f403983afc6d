"""Layouts put together by chance, and passes and rollbacks in any order: the reference's logits."""

import random
from pathlib import Path
from typing import Any

import pytest
from tiny_decoder import Decoder, reference_logits, write_folder

from edgeprof.runner.ort_model import OrtModel

CAPACITY = 24
# float32 sums, and half a step of 16-bit types where keys, values and logits of size 8 are rounded.
FLOAT32, SIXTEEN_BITS = 1e-5, 8 * 2**-7


def chosen(chance: random.Random) -> Decoder:
    """What exporters may combine: types, axes, names, order, rows and how lengths are told."""
    spec: dict[str, Any] = {
        "layers": chance.choice([1, 2, 3]),
        "kv_heads": chance.choice([1, 2, 4]),
        "cache": chance.choice(["f32", "f16"]),
        "logits": chance.choice(["f32", "f16", "bf16"]),
        "ids": chance.choice(["i32", "i64"]),
        "rows": chance.random() < 0.5,
        "columns": chance.choice([40, 41, 64]),
        "open_columns": chance.random() < 0.5,
        "backwards": chance.random() < 0.5,
    }
    merged = False
    if chance.random() < 0.4:
        counts = chance.choice(["mask", "past", ("past_seq_len", "total_seq_len")])
        spec |= {"attention": "gqa", "positions": False, "counts": counts, "mask": counts == "mask"}
    else:
        merged = chance.random() < 0.5
        spec |= {
            "axis": chance.choice([1, 2, 3]),
            "cache": chance.choice(["f32", "f16", "bf16"]),
            "mask": chance.random() < 0.5,
            "positions": chance.random() < 0.5,
            "merged": merged,
        }
    if not merged and chance.random() < 0.5:  # of a merged one only names tell
        spec |= {"past": "c%d_%s_in", "present": "c%d_%s_out"}
    return Decoder(**spec)


@pytest.mark.parametrize("seed", range(16))
def test_any_layout_computes_what_the_reference_does(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    spec = chosen(chance)
    bound = FLOAT32 if (spec.cache, spec.logits) == ("f32", "f32") else SIXTEEN_BITS
    model = OrtModel.open(write_folder(spec, tmp_path), threads=1, capacity=CAPACITY)
    text = [chance.randrange(spec.vocab) for _ in range(CAPACITY - 4)]
    expected = reference_logits(spec, text)
    while model.length < len(text):
        place = model.length
        count = min(chance.choice([1, 1, 2, 3, 5]), len(text) - place)
        rows = chance.choice([count, 1])
        logits = model.extend(text[place : place + count], rows=rows)
        assert logits.shape == (rows, spec.vocab)
        assert abs(logits - expected[place + count - rows : place + count]).max() < bound
        if chance.random() < 0.4:
            stands = model.length
            model.extend([9] * chance.choice([1, 3]))  # rejected, all of it
            model.rewind(chance.choice([stands, chance.randrange(stands + 1)]))
