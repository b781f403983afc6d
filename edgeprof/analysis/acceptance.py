"""What became of drafted tokens, under names that cannot be mixed up.

``draft_acceptance_rate``     accepted / drafted (llama.cpp, vLLM, aiperf)
``conditional_acceptance``    accepted / evaluated: alpha in Leviathan et al., arXiv 2211.17192
``mean_acceptance_length``    emitted tokens a round, the bonus or correction token included
``per_position[i]``           accepted at i / rounds
``conditional_per_position``  accepted at i / evaluated at i
``histogram[j]``              rounds in which j drafted tokens were accepted
"""

from collections.abc import Sequence

from msgspec import Struct

from edgeprof.session.records import Round

# No drafter drafts more; a damaged file shall not make lists of a billion positions.
LONGEST_ROUND = 1024


class Acceptance(Struct, frozen=True, kw_only=True):
    """Counts over all rounds of a variant, those without a draft included; None is undefined."""

    draft_acceptance_rate: float | None
    conditional_acceptance: float | None
    mean_acceptance_length: float
    per_position: list[float]
    conditional_per_position: list[float | None]
    histogram: list[int]
    rounds: int
    rounds_without_draft: int


def acceptance_of(rounds: Sequence[Round]) -> Acceptance | None:
    """None where there was no round."""
    if not rounds:
        return None
    longest = min(max(round_.drafted for round_ in rounds), LONGEST_ROUND)
    accepted_at = [sum(r.accepted > i for r in rounds) for i in range(longest)]
    evaluated_at = [sum(r.evaluated > i for r in rounds) for i in range(longest)]
    drafted, evaluated = sum(r.drafted for r in rounds), sum(r.evaluated for r in rounds)
    histogram = [sum(r.accepted == j for r in rounds) for j in range(longest + 1)]
    return Acceptance(
        draft_acceptance_rate=_share(sum(r.accepted for r in rounds), drafted),
        conditional_acceptance=_share(sum(r.accepted for r in rounds), evaluated),
        mean_acceptance_length=sum(r.emitted for r in rounds) / len(rounds),
        per_position=[count / len(rounds) for count in accepted_at],
        conditional_per_position=[
            _share(accepted, evaluated)
            for accepted, evaluated in zip(accepted_at, evaluated_at, strict=True)
        ],
        histogram=histogram,
        rounds=len(rounds),
        rounds_without_draft=sum(r.drafted == 0 for r in rounds),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
