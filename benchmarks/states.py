"""How much memory do the states of a search's prefixes take at a large vocabulary?

Two small GPT-2 (four layers of 128) over 20,000 tokens, and the paper's halving beam and the
bounded rank of a phrase of four tokens: both begin with one prefix for every token.

    python benchmarks/states.py

The last line is JSON: `beam_mib` and `rank_mib`, the peak of each over what the process held
before it, in a process of its own, and `state_mib`, what 20,000 rows of two tokens would take.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from reproduction.updates.beam_search import beam_search, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel

VOCABULARY, HIDDEN, LAYERS, LENGTH = 20_000, 128, 4, 4


def snapshots() -> Pair:
    """Two untrained networks, the second a little off the first."""
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=4,
        n_positions=32,
        bos_token_id=1,
        eos_token_id=1,
    )
    before, after = (GPT2LMHeadModel(shape).eval() for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            p.mul_(4)
            q.copy_(p + 0.1 * torch.randn_like(p))
    subwords = SubwordVocabulary.train_bpe(Corpus.from_texts(["the quick brown fox"]), size=280)
    models = (HuggingFaceLanguageModel(network, subwords) for network in (before, after))
    return Pair.of(*models, TokenScore("differential"))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(work: str) -> None:
    pair = snapshots()
    pair.gains(
        pair.start(torch.empty(64, 0, dtype=torch.int64))
    )  # what any use of the models takes
    held = peak_mib()
    if work == "beam":
        beam_search(pair, halving_widths(VOCABULARY, LENGTH))
    elif work == "rank":
        rank_bounds(pair, (5, 6, 7, 8), budget=2_000)
    print(peak_mib() - held)


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    found = {
        f"{work}_mib": round(
            float(subprocess.check_output([sys.executable, __file__, work], text=True))
        )
        for work in ("beam", "rank")
    }
    every = 2 * VOCABULARY * 2 * LAYERS * 2 * HIDDEN * 4 / 2**20
    print(f"extra memory: halving beam {found['beam_mib']} MiB, rank {found['rank_mib']} MiB")
    print(json.dumps({"benchmark": "states", **found, "state_mib": round(every)}))


if __name__ == "__main__":
    main()
