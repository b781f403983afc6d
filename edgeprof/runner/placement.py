"""Where the nodes of a graph ran: counted by provider and operator, and judged.

A provider takes what it can and leaves the rest to the CPU without a word. Knows nothing of how a
session is opened.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgeprof.errors import EnvironmentFault, FileFault

# By provider, as onnxruntime calls it: how many nodes of each operator.
Placement = Mapping[str, Mapping[str, int]]

# Of a session's configuration: onnxruntime from 1.24 on can say what it decided.
RECORD_ENTRY = {"session.record_ep_graph_assignment_info": "1"}
_LARGEST_PROFILE_BYTES = 1 << 30
# Arithmetic on shapes and masks, a few numbers: providers leave it to the CPU on purpose. Copies
# are what that costs.
_ON_SHAPES = frozenset(
    ("Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal", "Expand",
     "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual",
     "Identity", "If", "Less", "LessOrEqual", "Max", "MemcpyFromHost", "MemcpyToHost", "Min", "Mod",
     "Mul", "Neg", "NonZero", "Not", "Or", "Pad", "Range", "ReduceMax", "ReduceMin", "ReduceProd",
     "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split",
     "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where")
)  # fmt: skip


def assigned_nodes(session: Any) -> Placement | None:
    """What the session itself says; None where this onnxruntime cannot tell."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    counts: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        operators = (node.op_type for node in part.get_nodes())
        counts.setdefault(part.ep_name, Counter()).update(operators)
    return counts


def profiled_nodes(path: Path) -> Placement:
    """What a profile of one pass says, as ``session.end_profiling`` leaves it."""
    counts: dict[str, Counter[str]] = {}
    for provider, operator in _kernels(path):
        counts.setdefault(provider, Counter())[operator] += 1
    return counts


def _kernels(path: Path) -> Iterator[tuple[str, str]]:
    """(provider, operator) of every node that ran."""
    try:
        if path.stat().st_size > _LARGEST_PROFILE_BYTES:
            raise FileFault(f"{path}: a profile of one pass is not as large")
        events = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFault(f"{path}: not a profile of onnxruntime: {error}") from error
    for event in events if isinstance(events, list) else []:
        if not isinstance(event, dict) or not isinstance(event.get("args"), dict):
            continue
        if event.get("cat") == "Node" and str(event.get("name")).endswith("_kernel_time"):
            yield str(event["args"].get("provider")), str(event["args"].get("op_name"))


def require_placement(placement: Placement, title: str, *, fallback: bool, label: str) -> None:
    """EnvironmentFault where the provider ``title`` took nothing, or, unless ``fallback`` allows
    it, where operators other than those on shapes run elsewhere."""
    if not placement.get(title):
        raise EnvironmentFault(
            f"{label}: {title} took none of its nodes; {_told(placement)}: take another provider"
        )
    elsewhere = {
        provider: {kind: count for kind, count in kinds.items() if kind not in _ON_SHAPES}
        for provider, kinds in placement.items()
        if provider != title
    }
    elsewhere = {provider: kinds for provider, kinds in elsewhere.items() if kinds}
    if elsewhere and not fallback:
        raise EnvironmentFault(
            f"{label}: not all of it runs on {title}: {_told(elsewhere)}; allow it with "
            "provider_settings.fallback = true, or take another export or provider"
        )


def node_counts(placement: Placement) -> dict[str, int]:
    """Nodes by provider."""
    return {provider: sum(kinds.values()) for provider, kinds in placement.items()}


def _told(placement: Placement) -> str:
    return "; ".join(
        f"{provider} runs "
        + ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items())[:8])
        + (" ..." if len(kinds) > 8 else "")
        for provider, kinds in placement.items()
    )
