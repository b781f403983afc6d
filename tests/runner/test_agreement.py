from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeprof.runner.agreement import probe_agreement


def test_a_model_whose_passes_agree(rule_model: Any) -> None:
    agreement = probe_agreement(rule_model(lambda text: sum(text)))
    assert agreement.max_logit_difference == {1: 0, 2: 0, 3: 0, 4: 0, 8: 0}
    assert agreement.after_rollback == 0
    assert agreement.one_token_passes_agree


def test_a_model_whose_one_token_passes_differ(rule_model: Any) -> None:
    class OneRowKernel(rule_model):  # type: ignore[misc]
        def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
            logits: NDArray[np.float32] = super().extend(tokens, rows)
            return logits + np.float32(0.25) if len(tokens) == 1 else logits

    agreement = probe_agreement(OneRowKernel(lambda text: sum(text)))
    assert agreement.max_logit_difference == {1: 0.25, 2: 0, 3: 0, 4: 0, 8: 0}
    assert not agreement.one_token_passes_agree


def test_a_rollback_that_leaves_something_behind_is_seen(rule_model: Any) -> None:
    class Leaky(rule_model):  # type: ignore[misc]
        def rewind(self, length: int) -> None:
            self.cached[length:] = []
            self.rewound = getattr(self, "rewound", 0) + 1

        def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
            logits: NDArray[np.float32] = super().extend(tokens, rows)
            logits[:] += getattr(self, "rewound", 0) > 6
            return logits

    assert probe_agreement(Leaky(lambda text: 0)).after_rollback == 1
