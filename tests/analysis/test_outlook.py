"""Which passes an answer holds, and what its fit is taken at."""

from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.catalog import find_device, find_kv_type, find_model


def ask(**choices: object) -> Outlook:
    return outlook(
        device=find_device("orin-nano"),
        model=find_model("7b-q4")[0],
        kv=find_kv_type("f16"),
        **choices,  # type: ignore[arg-type]
    )


def passes(answer: Outlook) -> list[tuple[str, int, int]]:
    return [(p.cost.phase, p.cost.tokens, p.cost.context_tokens) for p in answer.passes]


def test_the_default_is_decode_verify_of_k_plus_one_and_a_prompt() -> None:
    assert passes(ask()) == [("decode", 1, 0), ("verify", 5, 0), ("prefill", 512, 0)]


def test_each_context_has_its_passes_and_the_deepest_is_prefilled() -> None:
    answer = ask(contexts=(4096, 100), draft_length=2, draft=find_model("tinyllama-1.1b")[0])
    assert passes(answer) == [
        ("decode", 1, 4096),
        ("verify", 3, 4096),
        ("draft", 1, 4096),
        ("decode", 1, 100),
        ("verify", 3, 100),
        ("draft", 1, 100),
        ("prefill", 4096, 0),
    ]
    assert answer.fit.kv_bytes == (4096 + 3) * 524_288
    assert answer.fit.draft_kv_bytes == (4096 + 3) * 22_528


def test_tokens_add_a_pass_unless_it_is_there_already() -> None:
    assert ("verify", 8, 0) in passes(ask(tokens=8))
    assert passes(ask(tokens=1)) == passes(ask()) == passes(ask(tokens=5))
    assert ask(tokens=64).fit.kv_bytes == 64 * 524_288
