"""What a search of `diff` costs beyond the matrix products and forward passes it cannot do without.

- `words`: two LSTMs of 10,000 words. The halving beam reads 18,751 prefixes of up to five tokens
  with both models; the products alone have the same shapes and nothing between them. Then the exact
  rank of a phrase of two tokens. `extra_mib` is the peak beyond what the process held.
- `subwords`: the search of two GPT-2 (4 layers of 128, 4,096 outputs, random weights), relative to
  its own forward passes, recorded and done again with nothing between them.
- `adapter`: those passes where the later model is an adapter on the earlier one, relative to the
  passes of the earlier model alone, and the memory of both models' tensors relative to one's.

    python benchmarks/search_cost.py [words] [subwords] [adapter] [--models BEFORE AFTER]
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from harness import Row, Run, Work, main, now, seconds
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
from vestige.models.lora import add_lora
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
    beam = _median_ratio(
        lambda: beam_search(pair, widths), lambda: products(pair, [1, *widths[:-1]]), repeats
    )
    phrase = tuple(beam_search(pair, halving_widths(vocabulary, 2)).tokens[5].tolist())
    rank = _median_ratio(
        lambda: rank_bounds(pair, phrase, budget=1),
        lambda: products(pair, [1, vocabulary]),
        repeats,
    )
    return {"beam over products": beam, "rank over products": rank, "extra_mib": memory.mib()}


def _median_ratio(work: Work, alone: Work, repeats: int) -> float:
    """The median of the repeats' ratios; the first repeat is not counted."""
    ratios = [seconds(work) / seconds(alone) for _ in range(repeats + 1)]
    return statistics.median(ratios[1:])


def word_pair(vocabulary: int, hidden: int) -> Pair:
    """Two untrained networks, the second a little off the first, as after an update."""
    torch.manual_seed(0)
    names = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(vocabulary - 2))))
    config = LSTMConfig(layers=2, embedding_size=hidden, hidden_size=hidden)
    before, after = (LSTMLanguageModel(names, config).eval() for _ in range(2))
    with torch.no_grad():
        for p, q in zip(before.parameters(), after.parameters(), strict=True):
            p.mul_(4)  # peaked distributions, as a trained network's are
            q.copy_(p + 0.1 * torch.randn_like(p))
    return Pair.of(before, after, TokenScore("differential"))


@torch.no_grad()
def products(pair: Pair, rows_read: Sequence[int]) -> None:
    """The matrix products of reading and scoring so many prefixes with both models."""
    most = next(iter(pair.slices(max(rows_read)))).stop
    out = torch.empty(most, pair.vocab_size)
    for model in (pair.before.model, pair.after.model):
        gates = [p for name, p in model.lstm.named_parameters() if "weight" in name]
        hidden = torch.randn(max(rows_read), model.lstm.hidden_size)
        for rows in rows_read:
            for gate in gates:
                torch.mm(hidden[:rows], gate.t())
            for part in pair.slices(rows):
                size = part.stop - part.start
                torch.mm(hidden[part], model.head.weight.t(), out=out[:size])


# Subwords ----------------------------------------------------------------------------------------


def subwords(run: Run) -> Row:
    """The search relative to its own forward passes."""
    before, after = subword_models(run)
    ratios, recorded = [], ()
    for _ in range(run.times(3) + 1):
        recorded, _, taken = recorded_search(before, after, run.size(300, 6))
        ratios.append(taken / sum(seconds_of(one.model, one.passes) for one in recorded))
    tokens = sum(one.forward_tokens for one in recorded)
    return {"search over its passes": statistics.median(ratios[1:]), "forward tokens": tokens}


def adapter(run: Run) -> Row:
    """Passes and tensors of a base and an adapter, relative to those of the base."""
    base, after = subword_models(run)
    recorded, *_ = recorded_search(base, after, run.size(300, 6))
    adapted, ratios = add_lora(base).eval(), []
    for _ in range(run.times(3) + 1):
        first, second, again = (
            seconds_of(model, one.passes)
            for model, one in zip((base, adapted, base), (*recorded, recorded[1]), strict=True)
        )
        ratios.append((first + second) / (first + again))
    memory = weight_bytes(base, adapted) / weight_bytes(base)
    return {"passes over the base's": statistics.median(ratios[1:]), "tensors": memory}


def subword_models(run: Run) -> tuple[HuggingFaceLanguageModel, HuggingFaceLanguageModel]:
    """Two small random networks, the second a little off the first, or those of `--models`."""
    if run.options.models:
        before, after = map(load_model, run.options.models)
        return before, after
    return random_models()


def random_models() -> tuple[HuggingFaceLanguageModel, HuggingFaceLanguageModel]:
    """As if the second had been updated."""
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
    """(the passes of both models, the tokens that the search counts, its seconds)."""
    settings = Settings(
        sampling=Sampling(samples=samples, alternatives=2 * samples),
        openings=max(1, samples // 3),
        pairs=0,
    )
    models = Recorder(before), Recorder(after)
    pair = Pair.of(*models, TokenScore("smoothed"))
    taken = seconds(lambda: search(pair, settings))
    return models, sum(pair.tokens_read), taken


@dataclass(frozen=True)
class Pass:
    """One forward pass of the body, or of the head where it reads no tokens.

    Attributes:
        rows: read in one batch.
        behind: tokens that each row has read before.
        tokens: of each row.
    """

    rows: int
    behind: int = 0
    tokens: int = 0


@dataclass
class Recorder:
    """A model that notes the shapes of its passes."""

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
def seconds_of(model: HuggingFaceLanguageModel, passes: Sequence[Pass]) -> float:
    """Time of the passes alone: keys and values go into memory that was made before."""
    rows = max(one.rows for one in passes)
    longest = max(one.behind + one.tokens for one in passes)
    tokens = torch.randint(0, len(model.vocabulary), (rows, longest), device=model.device)
    probe = model.read(model.start(1, anywhere=True), tokens[:1, :1])
    room = [_room(layer, rows, longest) for layer in probe.layers]
    output = probe.hidden.repeat(rows, 1)
    device = model.device.type
    started = now(device)
    for one in passes:
        layers = tuple(_behind(held, one) for held in room) if one.tokens else ()
        state = CacheState(layers, output[: one.rows], one.behind if one.tokens else 1)
        if one.tokens:
            model.read(state, tokens[: one.rows, : one.tokens])
        else:
            model.logits(state)
    return now(device) - started


def _room(layer: Any, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    def wide(one: Tensor) -> Tensor:
        return one.new_zeros(rows, one.shape[1], tokens, one.shape[3])

    return wide(layer.held.keys), wide(layer.held.values)


def _behind(room: tuple[Tensor, Tensor], one: Pass) -> AppendedLayer:
    layer = AppendedLayer()
    if one.behind:
        keys, values = (part[: one.rows] for part in room)
        layer.held = KeysAndValues(keys, values, length=one.behind, written=[one.behind])
    return layer


def weight_bytes(*models: HuggingFaceLanguageModel) -> int:
    """Memory of the tensors of models, shared ones once."""
    tensors = {t.data_ptr(): t for m in models for t in (*m.parameters(), *m.buffers())}
    return sum(t.nbytes for t in tensors.values())


def options(parser: Any) -> None:
    """The models of `subwords` and `adapter`."""
    parser.add_argument("--models", type=Path, nargs=2, help="folders to search instead")


PARTS = {"words": words, "subwords": subwords, "adapter": adapter}

if __name__ == "__main__":
    main("search_cost", __doc__, PARTS, options)
