"""Finding boards, models and types by name; near misses are answered with what is near."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from edgeprof.catalog import (
    DEVICES_FOLDER,
    KV_TYPES,
    device_aliases,
    device_names,
    find_device,
    find_kv_type,
    find_model,
    find_recipe,
    format_table,
    model_table,
)
from edgeprof.errors import FileFault, UsageFault
from edgeprof.naming import name_key


@pytest.mark.parametrize(
    ("alias", "board", "mode"),
    [
        ("orin-nano", "orin-nano-8gb", "15W"),
        ("orin-nano-super", "orin-nano-8gb-super", "25W"),
        ("orin-nx", "orin-nx-16gb", "15W"),
        ("agx-orin", "agx-orin-64gb", "MODE_30W"),
        ("thor", "agx-thor-t5000", "120W"),
    ],
)
def test_short_names_of_boards(alias: str, board: str, mode: str) -> None:
    found = find_device(alias)
    assert (found.profile.name, found.mode.name, found.alias) == (board, mode, alias)


@pytest.mark.parametrize("text", ["ORIN_NX@maxn", "orin-nx-16GB@MAXN", "orin.nx.16gb@MaxN"])
def test_mode_behind_an_at_sign_in_any_spelling(text: str) -> None:
    found = find_device(text)
    assert (found.profile.name, found.mode.name) == ("orin-nx-16gb", "MAXN")
    assert find_device(text.partition("@")[0], "maxn").mode.name == "MAXN"


def test_a_mode_name_with_a_slash_is_no_path() -> None:
    assert find_device("agx-orin-industrial@maxn/75w").mode.name == "MAXN/75W"


def test_an_empty_mode_is_not_the_default_one() -> None:
    with pytest.raises(UsageFault, match="no power mode of orin-nano-8gb named ''"):
        find_device("orin-nano@")


def test_two_modes_for_one_board_are_refused() -> None:
    with pytest.raises(UsageFault, match="names a mode already"):
        find_device("orin-nano@7W", "15W")


def test_unknown_mode_lists_those_of_the_board() -> None:
    with pytest.raises(UsageFault, match=r"no power mode of orin-nano-8gb named '25W'.*15W"):
        find_device("orin-nano@25W")


def test_a_profile_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (DEVICES_FOLDER / "orin-nano-8gb.toml").read_text()
    path.write_text(text.replace('name = "orin-nano-8gb"', 'name = "mine"', 1))
    assert find_device(str(path)).profile.name == "mine"
    assert find_device(f"{path}@7w").mode.name == "7W"
    path.write_text(text)
    with pytest.raises(FileFault, match="name is 'orin-nano-8gb', but the file is named 'mine'"):
        find_device(str(path))


def test_models_by_name_and_format() -> None:
    for text in ("llama2-7b:q4_k_m", "LLAMA2_7B:Q4_K_M", "llama2-7b-q4_k_m", "7b-q4", "llama2-7b"):
        spec, name = find_model(text)
        assert (spec.name, spec.quantisation) == ("llama2-7b", "q4_k_m")
        assert name.full == "llama2-7b:q4_k_m"


def test_a_model_by_path(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "my model.gguf", matrices="Q4_0")
    spec, name = find_model(str(path))
    assert spec.quantisation == "q4_0"  # the file does not say; most of its bytes are
    assert (name.asked, name.full) == (str(path), "my model:q4_0")


def test_a_known_name_goes_before_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("llama2-7b").mkdir()
    assert find_model("llama2-7b")[0].title == "Llama-2-7B"
    with pytest.raises(FileFault, match="models in this folder: none"):
        find_model("./llama2-7b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lama2-7b:q4_0", "no model named 'lama2-7b'; did you mean 'llama2-7b'"),
        ("llama2-7b:q4km0", "no format named 'q4km0'; did you mean 'q4_k_m'"),
        ("./model.gguf", "model.gguf: no such file or folder"),
        ("nothing", "a path to a model is taken too"),
        (":", "no model named ':'"),
    ],
)
def test_unknown_models_and_formats(text: str, message: str) -> None:
    with pytest.raises(UsageFault) as caught:
        find_model(text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_kv_types_and_recipes() -> None:
    assert find_kv_type("Q8_0").block_bytes == 34
    with pytest.raises(UsageFault, match="no KV cache type named 'q9'"):
        find_kv_type("q9")
    with pytest.raises(UsageFault, match="no recipe named 'nothing-like-it'"):
        find_recipe("nothing-like-it")
    assert find_recipe("some/where.toml") == Path("some/where.toml")


def test_no_two_names_are_spelled_alike() -> None:
    devices = [*device_names(), *device_aliases()]
    models = [*model_table().models, *model_table().aliases]
    formats = [*format_table().formats, *format_table().aliases]
    for names in (devices, models):
        assert len({name_key(name) for name in names}) == len(names)
    assert len({name_key(name) for name in formats}) == len(formats)


def test_every_alias_and_type_leads_somewhere() -> None:
    for alias in device_aliases():
        find_device(alias)
    assert set(model_table().aliases.values()) <= set(model_table().models)
    table = format_table()
    assert set(table.aliases.values()) <= set(table.formats)
    named = chain.from_iterable(
        [form.base, form.head, form.vectors, form.embedding or form.base]
        + [rule.storage for rule in form.raised]
        for form in table.formats.values()
    )
    fallbacks = {storage.fallback for storage in table.storage.values() if storage.fallback}
    assert set(named) | fallbacks | set(KV_TYPES) <= set(table.storage)


def test_every_model_can_be_had_in_every_format() -> None:
    for model in model_table().models:
        for form in table_formats():
            spec, _ = find_model(f"{model}:{form}")
            assert 0 < spec.streamed_weight_bytes <= spec.resident_weight_bytes


def table_formats() -> list[str]:
    return [name for name in format_table().formats if not name.startswith("matmulnbits")]
