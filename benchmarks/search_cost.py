"""What a search of `diff` costs beyond the matrix products and forward passes that it needs.

- `words`: two LSTMs of 10,000 words. The halving beam reads 18,751 prefixes of up to five tokens
  with both models; the products alone have the same shapes and nothing between them. Then the exact
  rank of a phrase of two tokens. `extra_mib` is the peak beyond what the process had.
- `subwords`: the search of two GPT-2 (4 layers of 128, 4,096 outputs, random weights), relative to
  its own forward passes, recorded and repeated with nothing between them.

    python benchmarks/search_cost.py [words] [subwords] [--models BEFORE AFTER]
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import Row, Run, Task, main, seconds
from networks import gpt2
from torch import Tensor

from reproduction.updates.searches import beam_search, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Sampling, Settings
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import PeakMemory
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import AppendedLayer, CacheState, HuggingFaceLanguageModel
from vestige.models.key_value_cache import KeysAndValues
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel

LENGTH = 5
"""Tokens of a phrase of the beam."""


# Words -------------------------------------------------------------------------------------------


def words(run: Run) -> Row:
    """Beam and rank of word models relative to their matrix products."""
    vocabulary, hidden = run.size((10_000, 200), (400, 16))
    pair, widths = word_pair(vocabulary, hidden), halving_widths(vocabulary, LENGTH)
    memory = PeakMemory(torch.device("cpu"))
    repeats = run.times(3)
    beam = median_ratio(
        lambda: beam_search(pair, widths), lambda: products(pair, [1, *widths[:-1]]), repeats
    )
    phrase = tuple(beam_search(pair, halving_widths(vocabulary, 2)).tokens[5].tolist())
    rank = median_ratio(
        lambda: rank_bounds(pair, phrase, budget=1),
        lambda: products(pair, [1, vocabulary]),
        repeats,
    )
    return {"beam over products": beam, "rank over products": rank, "extra_mib": memory.mib()}


def median_ratio(task: Task, base: Task, repeats: int) -> float:
    """The median over repeats of the ratio of times; the first repeat is not counted."""
    ratios = [seconds(task) / seconds(base) for _ in range(repeats + 1)]
    return statistics.median(ratios[1:])


def word_pair(vocabulary: int, hidden: int) -> Pair:
    """Two untrained networks; the second differs a little, as after an update."""
    torch.manual_seed(0)
    names = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(vocabulary - 2))))
    config = LSTMConfig(layers=2, embedding_size=hidden, hidden_size=hidden)
    before, after = (LSTMLanguageModel(names, config).eval() for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            p.mul_(4)  # peaked distributions, as of a trained network
            q.copy_(p + 0.1 * torch.randn_like(p))
    return Pair.of(before, after, TokenScore("differential"))


@torch.no_grad()
def products(pair: Pair, widths: Sequence[int]) -> None:
    """The matrix products of reading and scoring a number of prefixes per step with both models."""
    most = next(iter(pair.slices(max(widths)))).stop
    out = torch.empty(most, pair.vocab_size)
    for model in (pair.before.model, pair.after.model):
        gates = [p for name, p in model.lstm.named_parameters() if "weight" in name]
        hidden = torch.randn(max(widths), model.lstm.hidden_size)
        for rows in widths:
            for gate in gates:
                torch.mm(hidden[:rows], gate.t())
            for part in pair.slices(rows):
                size = part.stop - part.start
                torch.mm(hidden[part], model.head.weight.t(), out=out[:size])


# Subwords ----------------------------------------------------------------------------------------


def subwords(run: Run) -> Row:
    """The search relative to its own forward passes."""
    folders = run.options.models
    before, after = [load_model(f, device="cpu") for f in folders] if folders else random_models()
    ratios, recorders = [], ()
    for _ in range(run.times(3) + 1):
        recorders, _, taken = recorded_search(before, after, run.size(300, 6))
        passes = sum(seconds(replay(recorder.model, recorder.passes)) for recorder in recorders)
        ratios.append(taken / passes)
    tokens = sum(recorder.forward_tokens for recorder in recorders)
    return {"search over its passes": statistics.median(ratios[1:]), "forward tokens": tokens}


def random_models() -> tuple[HuggingFaceLanguageModel, HuggingFaceLanguageModel]:
    """Two random networks; the second differs a little, as after an update."""
    texts = [f"{chr(97 + i % 26)}{chr(97 + i // 26)} went {i}" for i in range(600)]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=400)
    shape = {"width": 128, "layers": 4, "heads": 4, "positions": 128, "vocab_size": 4096}
    before, after = (gpt2(vocabulary, **shape, initializer_range=0.15) for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            q.copy_(p + 0.03 * torch.randn_like(p))
    return before, after


def recorded_search(
    before: HuggingFaceLanguageModel, after: HuggingFaceLanguageModel, samples: int
) -> tuple[tuple["Recorder", "Recorder"], int, float]:
    """(both models with their passes, the tokens that the search counts, its seconds)."""
    settings = Settings(
        sampling=Sampling(samples=samples, alternatives=2 * samples),
        openings=max(1, samples // 3),
        pairs=0,
    )
    recorders = Recorder(before), Recorder(after)
    pair = Pair.of(*recorders, TokenScore("smoothed"))
    taken = seconds(lambda: search(pair, settings))
    return recorders, sum(pair.tokens_read), taken


@dataclass(frozen=True)
class Pass:
    """One forward pass of the body, or of the head if it reads no tokens.

    Attributes:
        rows: of the batch.
        past: tokens of each row before the pass.
        tokens: of each row.
    """

    rows: int
    past: int = 0
    tokens: int = 0


@dataclass
class Recorder:
    """A model that records the shapes of its passes."""

    model: HuggingFaceLanguageModel
    passes: list[Pass] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def forward_tokens(self) -> int:
        return sum(one.rows * one.tokens for one in self.passes)

    def start(self, n: int, *, anywhere: bool = False) -> CacheState:
        if not anywhere:
            self.passes.append(Pass(1, 0, 1))
        return self.model.start(n, anywhere=anywhere)

    def read(self, state: CacheState, tokens: Tensor) -> CacheState:
        if tokens.numel():
            self.passes.append(Pass(len(tokens), state.length, tokens.shape[1]))
        return self.model.read(state, tokens)

    def advance(self, state: CacheState, tokens: Tensor) -> CacheState:
        return self.read(state, tokens[:, None])

    def logits(self, state: CacheState) -> Tensor:
        self.passes.append(Pass(len(state)))
        return self.model.logits(state)

    def log_probs(self, state: CacheState) -> Tensor:
        return self.logits(state).log_softmax(1)


@torch.no_grad()
def replay(model: HuggingFaceLanguageModel, passes: Sequence[Pass]) -> Task:
    """A task that repeats the passes alone, with memory for keys and values allocated before."""
    rows = max(one.rows for one in passes)
    longest = max(one.past + one.tokens for one in passes)
    tokens = torch.randint(0, len(model.vocabulary), (rows, longest))
    probe = model.read(model.start(1, anywhere=True), tokens[:1, :1])
    allocated = [_allocate(layer, rows, longest) for layer in probe.layers]
    return partial(_run_passes, model, passes, tokens, allocated, probe.hidden.repeat(rows, 1))


@torch.no_grad()
def _run_passes(
    model: HuggingFaceLanguageModel, passes: Sequence[Pass], tokens: Tensor,
    allocated: Sequence[tuple[Tensor, Tensor]], hidden: Tensor,
) -> None:  # fmt: skip
    for one in passes:
        if one.tokens:
            layers = tuple(_layer_with_past(layer, one) for layer in allocated)
            state = CacheState(layers, hidden[: one.rows], one.past)
            model.read(state, tokens[: one.rows, : one.tokens])
        else:
            model.logits(CacheState((), hidden[: one.rows], 1))


def _allocate(layer: Any, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    def enlarged(tensor: Tensor) -> Tensor:
        return tensor.new_zeros(rows, tensor.shape[1], tokens, tensor.shape[3])

    return enlarged(layer.contents.keys), enlarged(layer.contents.values)


def _layer_with_past(allocated: tuple[Tensor, Tensor], one: Pass) -> AppendedLayer:
    layer = AppendedLayer()
    if one.past:
        keys, values = (part[: one.rows] for part in allocated)
        layer.contents = KeysAndValues(keys, values, length=one.past, written=[one.past])
    return layer


def options(parser: Any) -> None:
    """The models of `subwords`."""
    parser.add_argument("--models", type=Path, nargs=2, help="folders to search instead")


PARTS = {"words": words, "subwords": subwords}

if __name__ == "__main__":
    main("search_cost", __doc__, PARTS, options)
