"""Does a token get the same logits in passes of every size, and from another provider?

Asked of the model at hand. Kernels for one row and for many round differently; with int8
activations the difference can change a greedy choice. Speculative output equals plain decoding only
where passes agree, or by luck.
"""

import random

from edgeprof.runner.token_model import TokenModel
from edgeprof.session.records import PassAgreement

_CONTEXT_TOKENS = 32
_PROBED_TOKENS = 8
_SIZES = (1, 2, 3, 4, 8)
_PARITY_TOKENS = 24
LONGEST_PROBE = _CONTEXT_TOKENS  # tokens of a pass
LEAST_CAPACITY = 1 + _PROBED_TOKENS  # of a model that is to be asked


def probe_agreement(model: TokenModel, *, seed: int = 0) -> PassAgreement:
    """Run the same eight tokens in passes of 1, 2, 3, 4 and 8 and once more after a rollback.

    The tokens are random (by ``seed``); the cache is used and left empty. Differences are the
    largest absolute ones against a single pass of eight; ``after_rollback`` is NaN where the model
    gives logits that are no numbers.
    """
    chooser = random.Random(seed)
    count = min(_CONTEXT_TOKENS, model.capacity - _PROBED_TOKENS)
    context = [chooser.randrange(model.vocab_size) for _ in range(count)]
    probed = [chooser.randrange(model.vocab_size) for _ in range(_PROBED_TOKENS)]
    model.rewind(0)
    model.extend(context, rows=1)
    reference = model.extend(probed).copy()
    differences = {}
    for size in _SIZES:
        model.rewind(count)
        largest = 0.0
        for start in range(0, _PROBED_TOKENS, size):
            part = probed[start : start + size]
            difference = model.extend(part) - reference[start : start + len(part)]
            largest = max(largest, float(abs(difference).max()))
        differences[size] = largest
    model.rewind(count)
    model.extend(list(reversed(probed)))  # other tokens, rolled back at once
    model.rewind(count)
    after_rollback = float(abs(model.extend(probed) - reference).max())
    model.rewind(0)
    return PassAgreement(
        reference_tokens=_PROBED_TOKENS,
        max_logit_difference=differences,
        after_rollback=after_rollback,
    )


def logit_distance(model: TokenModel, reference: TokenModel, *, seed: int = 0) -> float:
    """How far the logits of two models are apart, in units of how much the reference's vary.

    The same random text goes through both: a prompt, then a pass of several tokens behind it, where
    a provider that aligns attention differently shows. Rounding to 16 bits or to int8 activations
    gives some hundredths to a tenth, unrelated logits 1 or more; NaN where logits are no numbers.
    Both caches are used and left empty.
    """
    import numpy as np

    chooser = random.Random(seed)
    room = min(model.capacity, reference.capacity, _PARITY_TOKENS)
    text = [chooser.randrange(reference.vocab_size) for _ in range(room)]
    split = 2 * room // 3
    seen = []
    for asked in (model, reference):
        asked.rewind(0)
        parts = [asked.extend(part).astype(np.float64) for part in (text[:split], text[split:])]
        seen.append(np.concatenate(parts))
        asked.rewind(0)
    difference, spread = seen[0] - seen[1], seen[1] - seen[1].mean()
    return float(np.linalg.norm(difference) / np.linalg.norm(spread))
