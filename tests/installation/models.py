"""Makes two random little models and says what one of them must answer; run by ``check.py`` with
the Python that edgeprof was installed for.

    python models.py FOLDER     writes target.gguf and plain/ there, prints one JSON document
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from made_gguf import write_decoder_gguf
from tiny_decoder import Decoder, reference_logits, write_folder

PROMPT = [3, 14, 15, 9, 26]
NEW_TOKENS = 24
SPEC = Decoder(layers=2, context=64, vocab=40, columns=40, seed=3)


def greedy(spec: Decoder, prompt: list[int], count: int) -> tuple[list[int], float]:
    """Tokens in float64 numpy over the whole text each time, and the least lead of any of them."""
    tokens, least_lead = list(prompt), float("inf")
    for _ in range(count):
        logits = reference_logits(spec, tokens)[-1]
        second, first = sorted(logits)[-2:]
        least_lead = min(least_lead, float(first - second))
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :], least_lead


def main(folder: Path) -> None:
    write_decoder_gguf(folder / "target.gguf", "llama", storage="F32", layers=2, context=160)
    write_folder(SPEC, folder / "plain")
    answer, lead = greedy(SPEC, PROMPT, NEW_TOKENS)
    print(json.dumps({"prompt": PROMPT, "answer": answer, "least_lead": lead}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
