"""What does the search cost beyond the matrix products that it cannot do without?

Vocabulary 10,000, two snapshots of a two-layer LSTM of 200, phrases of five tokens: the
shrinking beam reads 18,751 prefixes with both models. The matrix products alone are the same
products, of the same shapes, with nothing between them. Both are timed in turn, in this run.

    python benchmarks/update_diff.py [--repeats N]

The last line is JSON: `diff_ratio` and `rank2_ratio` (search over products, medians of the
repeats' ratios) and `extra_memory_mib` (peak over what the process held before).
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from vestige.attacks.update.beam_search import beam_search, halving_widths
from vestige.attacks.update.differential_rank import rank_bounds
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.token_scores import token_score
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel

VOCABULARY, HIDDEN, LAYERS, LENGTH = 10_000, 200, 2, 5


def snapshots() -> ModelPair:
    """Two untrained networks, the second a little off the first, as after an update."""
    torch.manual_seed(0)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(VOCABULARY - 2)))
    config = LSTMConfig(layers=LAYERS, embedding_size=HIDDEN, hidden_size=HIDDEN)
    before, after = (LSTMLanguageModel(WordVocabulary(words), config).eval() for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            p.mul_(4)  # peaked distributions, as a trained network's are
            q.copy_(p + 0.1 * torch.randn_like(p))
    return ModelPair(before, after, token_score("differential"))


@torch.no_grad()
def products(pair: ModelPair, rows_read: Sequence[int]) -> None:
    """The matrix products of reading and asking so many prefixes, twice (two models)."""
    most = pair.slices(max(rows_read)).__next__().stop
    out = torch.empty(most, VOCABULARY)
    for model in (pair.before, pair.after):
        gates = [p for name, p in model.lstm.named_parameters() if "weight" in name]
        hidden = torch.randn(max(rows_read), HIDDEN)
        for rows in rows_read:
            for gate in gates:
                torch.mm(hidden[:rows], gate.t())
            for part in pair.slices(rows):
                size = part.stop - part.start
                torch.mm(hidden[part], model.head.weight.t(), out=out[:size])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(search: Callable[[], object], alone: Callable[[], object], repeats: int) -> list[float]:
    """Search over products, timed in turn; the first pair warms up and does not count."""
    pairs = [(seconds(search), seconds(alone)) for _ in range(repeats + 1)]
    return [s / a for s, a in pairs[1:]]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    keep_freed_pages()
    pair = snapshots()
    widths = halving_widths(VOCABULARY, LENGTH)
    held = peak_mib()
    diff = ratio(
        lambda: beam_search(pair, widths), lambda: products(pair, [1, *widths[:-1]]), repeats
    )
    phrase = tuple(beam_search(pair, halving_widths(VOCABULARY, 2)).tokens[5].tolist())
    rank = ratio(
        lambda: rank_bounds(pair, phrase, budget=1),
        lambda: products(pair, [1, VOCABULARY]),
        repeats,
    )
    extra = peak_mib() - held
    print(f"shrinking-beam diff over its matrix products: {', '.join(f'{r:.2f}' for r in diff)}")
    print(f"exhaustive two-token rank over its products:  {', '.join(f'{r:.2f}' for r in rank)}")
    print(f"peak extra memory: {extra:.0f} MiB; threads: {torch.get_num_threads()}")
    print(
        json.dumps(
            {
                "benchmark": "update_diff",
                "diff_ratio": round(statistics.median(diff), 3),
                "rank2_ratio": round(statistics.median(rank), 3),
                "extra_memory_mib": round(extra),
            }
        )
    )


if __name__ == "__main__":
    main()
