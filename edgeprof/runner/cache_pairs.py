"""Which output of a graph carries on which input of its cache.

Read from the operators that lie between the two; where these do not tell, from names, and at last
from the order of both.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.onnx_graph import OnnxGraph, OnnxNode, OnnxValue
from edgeprof.naming import listed

CACHE_RANK = 4

# Attention that takes the past and gives the present itself: its inputs and outputs for keys and
# values.
_CARRYING: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = {
    ("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "MultiHeadAttention"): ((6, 1), (7, 2)),
    ("", "Attention"): ((4, 1), (5, 2)),
}
# Of these, the one that writes what is new into the very buffer that holds what is past.
_SHARING = ("com.microsoft", "GroupQueryAttention")
# What may lie between a past and its present besides: new tokens put behind it, other types and
# orders of dimensions.
_PASSING = ("Concat", "Cast", "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice")

_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")

Pairs = list[tuple[OnnxValue, OnnxValue]]


def pair_caches(
    graph: OnnxGraph, pasts: Sequence[OnnxValue], folder: DecoderFolder
) -> tuple[Pairs, bool]:
    """Every past with the output that carries it on, and whether the two may be one buffer.

    Raises FileFault where there is no output for each.
    """
    outputs = {value.name: value for value in graph.outputs}
    found = _by_operators(graph, {past.name for past in pasts})
    if len(found) < len(pasts):
        found = {
            past.name: name
            for past in pasts
            for name in _present_names(past.name, folder)
            if name in outputs
        }
    if len(found) == len(pasts) == len(set(found.values())):
        pairs = [(past, outputs[found[past.name]]) for past in pasts]
        return pairs, _may_share(graph, found)
    presents = [value for value in graph.outputs if len(value.shape) == CACHE_RANK]
    if found or len(presents) != len(pasts):
        lost = [past.name for past in pasts if past.name not in found]
        raise FileFault(
            f"{graph.path}: no outputs that carry on {listed(lost or list(found))}: "
            f"{len(pasts)} cache inputs, {len(presents)} outputs of {CACHE_RANK} dimensions; "
            "export it as a decoder with past"
        )
    return list(zip(pasts, presents, strict=True)), False


def _by_operators(graph: OnnxGraph, pasts: Collection[str]) -> dict[str, str]:
    """Present by past, where exactly one past leads to an output and it to no other."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    found: dict[str, str] = {}
    twice: set[str] = set()
    for output in graph.outputs:
        origins = _origins(output.name, makers, pasts)
        if len(origins) == 1:
            (past,) = origins
            twice |= {past} & found.keys()
            found[past] = output.name
    return {past: present for past, present in found.items() if past not in twice}


def _origins(present: str, makers: Mapping[str, OnnxNode], pasts: Collection[str]) -> set[str]:
    """The pasts that ``present`` is made of."""
    seen: set[str] = set()
    waiting = [present]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = makers.get(name)
        if node is not None and name not in pasts:
            waiting += _sources(node, name)
    return seen & set(pasts)


def _sources(node: OnnxNode, output: str) -> Iterator[str]:
    """The inputs that the node hands on in this output."""
    if node.kind in _PASSING and not node.domain:
        yield from node.inputs
    for taken, given in _CARRYING.get((node.domain, node.kind), ()):
        if taken < len(node.inputs) and node.outputs[given : given + 1] == (output,):
            yield node.inputs[taken]


def _may_share(graph: OnnxGraph, pairs: Mapping[str, str]) -> bool:
    """Whether one operator alone sees each past and gives its present itself: any other that looks
    at them would see the whole buffer."""
    direct = {
        (node.inputs[taken], node.outputs[given])
        for node in graph.nodes
        for taken, given in _CARRYING.get((node.domain, node.kind), ())
        if (node.domain, node.kind) == _SHARING
        and taken < len(node.inputs)
        and given < len(node.outputs)
    }
    seen = Counter(name for node in _used(graph) for name in node.inputs)
    return pairs.items() <= direct and all(
        seen[past] == 1 and not seen[present] for past, present in pairs.items()
    )


def _used(graph: OnnxGraph) -> Iterable[OnnxNode]:
    """The nodes that lead to an output: exporters leave others behind, which never run. Where nodes
    hold graphs of their own all count, for names do not tell what these look at."""
    if any(node.kind in _WITH_GRAPHS for node in graph.nodes):
        return graph.nodes
    makers = {name: place for place, node in enumerate(graph.nodes) for name in node.outputs}
    places: set[int] = set()
    waiting = [value.name for value in graph.outputs]
    while waiting:
        place = makers.get(waiting.pop())
        if place is not None and place not in places:
            places.add(place)
            waiting += graph.nodes[place].inputs
    return [graph.nodes[place] for place in places]


def _present_names(past: str, folder: DecoderFolder) -> Iterator[str]:
    """What the output may be called that carries on the input ``past``, most likely last."""
    for old in ("past_key_values", "past"):
        if old in past:
            yield past.replace(old, "present_key_values", 1)
            yield past.replace(old, "present", 1)
    for pasts, presents in (
        (folder.inputs.past_key_names, folder.outputs.present_key_names),
        (folder.inputs.past_value_names, folder.outputs.present_value_names),
    ):
        before, _, after = pasts.partition("%d")
        layer = past[len(before) : len(past) - len(after)]
        if past == f"{before}{layer}{after}" and layer.isdecimal():
            yield presents.replace("%d", layer)
