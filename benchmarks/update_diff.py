"""What does the search cost beyond the matrix products that it cannot do without?

Word level: vocabulary 10,000, two snapshots of a two-layer LSTM of 200, phrases of five tokens: the
shrinking beam reads 18,751 prefixes with both models. The matrix products alone are the same
products, of the same shapes, with nothing between them.

Subwords: the hybrid search of two GPT-2 (4 x 128, 4,096 outputs, random weights) over its own
forward passes, the same shapes with nothing between them; then with an adapter on the first as the
second, these passes over those of the first model alone, and the tensors of the two over its own.

All are timed in turn, in this run; with one thread in processor time, so that what else the machine
does counts less.

    python benchmarks/update_diff.py [--repeats N] [--samples N] [--models BEFORE AFTER]

The last line is JSON: `diff_ratio` and `rank2_ratio` (search over products, medians of the
repeats' ratios), `extra_memory_mib` (peak over what the process held before), `subword_ratio`,
`adapter_ratio` and `adapter_memory_ratio`.
"""

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from own_passes import Recorder, now, seconds_of, weight_bytes

from reproduction.updates.beam_search import beam_search, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Sampling, Settings
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel

VOCABULARY, HIDDEN, LAYERS, LENGTH = 10_000, 200, 2, 5


def snapshots() -> Pair:
    """Two untrained networks, the second a little off the first, as after an update."""
    torch.manual_seed(0)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(VOCABULARY - 2)))
    config = LSTMConfig(layers=LAYERS, embedding_size=HIDDEN, hidden_size=HIDDEN)
    before, after = (LSTMLanguageModel(WordVocabulary(words), config).eval() for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            p.mul_(4)  # peaked distributions, as a trained network's are
            q.copy_(p + 0.1 * torch.randn_like(p))
    return Pair.of(before, after, TokenScore("differential"))


@torch.no_grad()
def products(pair: Pair, rows_read: Sequence[int]) -> None:
    """The matrix products of reading and asking so many prefixes, twice (two models)."""
    most = pair.slices(max(rows_read)).__next__().stop
    out = torch.empty(most, VOCABULARY)
    for model in (pair.before.model, pair.after.model):
        gates = [p for name, p in model.lstm.named_parameters() if "weight" in name]
        hidden = torch.randn(max(rows_read), HIDDEN)
        for rows in rows_read:
            for gate in gates:
                torch.mm(hidden[:rows], gate.t())
            for part in pair.slices(rows):
                size = part.stop - part.start
                torch.mm(hidden[part], model.head.weight.t(), out=out[:size])


def subword_snapshots(
    folders: Sequence[Path] | None,
) -> tuple[HuggingFaceLanguageModel, HuggingFaceLanguageModel]:
    """Two small random networks, the second a little off the first, or those of two folders."""
    if folders:
        before, after = map(load_model, folders)
        assert isinstance(before, HuggingFaceLanguageModel), folders[0]
        assert isinstance(after, HuggingFaceLanguageModel), folders[1]
        return before, after
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    texts = [f"{chr(97 + i % 26)}{chr(97 + i // 26)} went {i}" for i in range(600)]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=400)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.eos_id)
    shape = GPT2Config(vocab_size=4096, n_positions=128, n_embd=128, n_layer=4, n_head=4,
                       initializer_range=0.15, **ends)  # fmt: skip
    before, after = GPT2LMHeadModel(shape), GPT2LMHeadModel(shape)
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            q.copy_(p + 0.03 * torch.randn_like(p))
    return tuple(HuggingFaceLanguageModel(one.eval(), vocabulary) for one in (before, after))


def seconds(work: Callable[[], object]) -> float:
    start = now(torch.device("cpu"))
    work()
    return now(torch.device("cpu")) - start


def subword_ratio(
    before: HuggingFaceLanguageModel, after: HuggingFaceLanguageModel, samples: int, repeats: int
) -> tuple[list[float], Recorder, Recorder]:
    """The hybrid search over its own passes, in turn; and the passes of both models."""
    settings = Settings(
        sampling=Sampling(samples=samples, alternatives=2 * samples),
        openings=max(1, samples // 3),
        pairs=0,
    )
    ratios = []
    for _ in range(repeats + 1):
        models = Recorder(before), Recorder(after)
        pair = Pair.of(*models, TokenScore("smoothed"))
        taken = seconds(lambda pair=pair: search(pair, settings))
        ratios.append(taken / sum(seconds_of(one.model, one.passes) for one in models))
    return ratios[1:], *models


def adapter_ratios(
    base: HuggingFaceLanguageModel, recorded: Sequence[Recorder], repeats: int
) -> tuple[list[float], float]:
    """Passes of a base and an adapter on it over those of the base alone; and of their tensors."""
    adapted = add_lora(base).eval()
    ratios = []
    for _ in range(repeats + 1):
        first, second, again = (
            seconds_of(model, one.passes)
            for model, one in zip((base, adapted, base), (*recorded, recorded[1]), strict=True)
        )
        ratios.append((first + second) / (first + again))
    return ratios[1:], weight_bytes(base, adapted) / weight_bytes(base)


def ratio(work: Callable[[], object], alone: Callable[[], object], repeats: int) -> list[float]:
    """Search over products, timed in turn; the first pair warms up and does not count."""
    pairs = [(seconds(work), seconds(alone)) for _ in range(repeats + 1)]
    return [s / a for s, a in pairs[1:]]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _shown(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=300, help="of the search of subwords")
    parser.add_argument("--models", type=Path, nargs=2, help="folders to search instead")
    given = parser.parse_args()
    repeats = given.repeats
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
    before, after = subword_snapshots(given.models)
    subwords, *recorded = subword_ratio(before, after, given.samples, repeats)
    adapter, memory = adapter_ratios(before, recorded, repeats)
    tokens = sum(one.forward_tokens for one in recorded)
    print(f"shrinking-beam diff over its matrix products: {_shown(diff)}")
    print(f"exhaustive two-token rank over its products:  {_shown(rank)}")
    print(f"hybrid search over its own passes:            {_shown(subwords)} ({tokens:,} tokens)")
    print(f"adapter pair over passes of the base alone:   {_shown(adapter)}; tensors {memory:.2f}")
    print(f"peak extra memory: {extra:.0f} MiB; threads: {torch.get_num_threads()}")
    print(
        json.dumps(
            {
                "benchmark": "update_diff",
                "diff_ratio": round(statistics.median(diff), 3),
                "rank2_ratio": round(statistics.median(rank), 3),
                "extra_memory_mib": round(extra),
                "subword_ratio": round(statistics.median(subwords), 3),
                "adapter_ratio": round(statistics.median(adapter), 3),
                "adapter_memory_ratio": round(memory, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
