"""How fast is a search of an update on a GPU, in one call of at most ten minutes?

Llama-shaped pairs of 1B and 8B parameters in bfloat16 with random weights: two full models, and a
base with an adapter. Random weights prove speed alone: what they promote is noise, and nothing that
is found in them counts. With --train, a model and a text are given: the model is fine-tuned on the
text, fully and with LoRA, and searched.

    python benchmarks/update_gpu.py [--shapes 1B 8B] [--train BASE TEXT.jsonl] [--tiny]

For each pair: seconds of a default search without loading, its forward tokens, the share of the
chip's bfloat16 peak that its operations come to, its time over that of its own forward passes, and
peak memory; for each shape one step of 128 rows as it is, compiled, and as a CUDA graph. Without
a GPU (or with --predict) the first two are predicted by arithmetic for a chip like an H200, and
called a prediction. --tiny runs everything on a processor, small. The last line is JSON.
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from own_passes import Recorder, now, seconds_of, weight_bytes

from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import Steps, steps_of
from vestige.audits.update.prompts import BEGINNING, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import Found, search
from vestige.audits.update.settings import Sampling, Settings
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import AppendedLayer, HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.shared_ids import SharedIds

SEARCH = Settings()
TINY_SEARCH = Settings(
    sampling=Sampling(samples=4, length=6, alternatives=6), openings=2, pairs=0, repaired=2
)
BEHIND = 32
"""Tokens before a step on average, for predictions."""
STEP = (128, 32)
"""Rows of a timed step, and tokens that they have read."""


@dataclass(frozen=True)
class ModelCost:
    """Operations per token: two per parameter, and 4 x layers x width per earlier token.

    Kaplan et al. 2020, "Scaling Laws for Neural Language Models", arXiv:2001.08361, table 1.

    Attributes:
        body: parameters that every token passes.
        head: weights of the head, used where a distribution is queried.
        attention: operations for each earlier token.
    """

    body: int
    head: int
    attention: int

    @classmethod
    def of(cls, model: Any) -> "ModelCost":
        """Of a network; a model without parameters costs nothing."""
        if isinstance(model, SharedIds):
            return cls.of(model.model)
        parameters = list(model.parameters()) if hasattr(model, "parameters") else []
        wide = {model.vocab_size, len(model.vocabulary)}
        tables = [p for p in parameters if p.dim() == 2 and wide & set(p.shape)]
        shape = getattr(model, "settings", None) or getattr(model, "config", None)
        layers = getattr(shape, "num_hidden_layers", getattr(shape, "layers", 0))
        width = getattr(shape, "hidden_size", 0)
        recurrent = getattr(model, "longest", None) is None and not hasattr(shape, "heads")
        return cls(
            body=sum(p.numel() for p in parameters) - sum(t.numel() for t in tables),
            head=min((t.numel() for t in tables), default=0),
            attention=0 if recurrent else 4 * layers * width,
        )

    def operations(self, steps: Steps) -> float:
        """Of decoding steps, each of which also queries the next token."""
        each = 2 * self.body + self.attention * BEHIND + 2 * self.head
        return steps.rows * steps.steps * each


@dataclass(frozen=True)
class Shape:
    """Of a Llama."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    feed_forward: int
    vocabulary: int
    tied: bool

    @property
    def cost(self) -> ModelCost:
        """Operations of a token, as the planner counts them."""
        head = self.hidden // self.heads
        attention = 2 * self.hidden * (self.hidden + self.key_heads * head)
        each = attention + 3 * self.hidden * self.feed_forward
        return ModelCost(
            body=self.layers * each,
            head=self.hidden * self.vocabulary,
            attention=4 * self.layers * self.hidden,
        )

    @property
    def nbytes(self) -> int:
        """Weights in bfloat16 that a pass of body and head reads."""
        return 2 * (self.cost.body + self.cost.head)


SHAPES = {
    "1B": Shape(2048, 16, 32, 8, 8192, 128_256, True),
    "8B": Shape(4096, 32, 32, 8, 14_336, 128_256, False),
    "tiny": Shape(64, 2, 4, 2, 128, 512, True),
}


@dataclass(frozen=True)
class Chip:
    """What a GPU can do.

    Attributes:
        peak: bfloat16 operations a second, dense, as its maker says.
        bandwidth: bytes a second from its memory.
        products: share of the peak that large matrix products reach.
        layer: seconds that the host takes to start a layer's kernels, one after the other.
    """

    peak: float = 989e12
    bandwidth: float = 4.8e12
    products: float = 0.6
    layer: float = 350e-6


PEAKS = {"H200": Chip(), "H100": Chip(bandwidth=3.35e12), "A100": Chip(312e12, 2.0e12)}


def predicted(shape: Shape, steps: Iterable[Steps], chip: Chip) -> float:
    """Seconds of two models' steps: products, weights read, or kernels started, what is longest.

    What the search does between the steps is taken to hide behind them.
    """

    def seconds(one: Steps) -> float:
        products = shape.cost.operations(one) / (chip.products * chip.peak)
        read = one.steps * (shape.nbytes + 4 * one.rows * shape.vocabulary) / chip.bandwidth
        started = one.steps * shape.layers * chip.layer
        return max(products, read, started) * (1 + one.before)

    return sum(map(seconds, steps))


def planned(shape: Shape, settings: Settings) -> list[Steps]:
    """What the search expects to read, of models that are not made."""
    pair: Any = SimpleNamespace(vocab_size=shape.vocabulary)
    return list(steps_of(settings, pair, [Prompt(BEGINNING, (0,))]))


def vocabulary() -> SubwordVocabulary:
    """A small tokenizer: ids behind it are as good for speed."""
    return SubwordVocabulary.train_bpe(Corpus.from_texts([f"n {i}" for i in range(300)]), size=300)


def network(shape: Shape, device: torch.device) -> HuggingFaceLanguageModel:
    """Random weights, with logits as peaked as a trained model's."""
    from transformers import LlamaConfig, LlamaForCausalLM

    words = vocabulary()
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=2048,
        tie_word_embeddings=shape.tied,
        bos_token_id=words.eos_id,
        eos_token_id=words.eos_id,
    )
    made = _made(LlamaForCausalLM, config, device)
    with torch.no_grad():
        made.model.norm.weight.mul_(200 / shape.hidden**0.5)
    return HuggingFaceLanguageModel(made, words).eval()


def _made(kind: Any, config: Any, device: torch.device) -> Any:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return kind(config).eval()
    finally:
        torch.set_default_dtype(usual)


@torch.no_grad()
def updated(base: HuggingFaceLanguageModel, kind: str) -> HuggingFaceLanguageModel:
    """A second model a little off the first: full, or an adapter on it."""
    if kind == "adapter":
        after = add_lora(base, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]).eval()
        for name, weight in after.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
        return after
    other = _made(type(base.network), base.network.config, base.device)
    for p, q in zip(base.parameters(), other.parameters(), strict=True):
        q.copy_(p).add_(torch.randn_like(p), alpha=0.1 * float(p.float().std()))
    return HuggingFaceLanguageModel(other, base.vocabulary).eval()


def searched(
    before: HuggingFaceLanguageModel,
    after: HuggingFaceLanguageModel,
    settings: Settings,
    peak: float | None,
) -> tuple[dict[str, Any], Found]:
    """One search, warm: its time, operations and memory."""
    device = after.device
    score = TokenScore("smoothed")
    search(Pair.of(before, after, score), TINY_SEARCH)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    models = [Recorder(before), Recorder(after)]
    started = now(device)
    found = search(Pair.of(*models, score), settings)
    taken = now(device) - started
    memory = (
        torch.cuda.max_memory_allocated(device)
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    )
    alone = sum(seconds_of(one.model, one.passes) for one in models)
    tokens = sum(one.forward_tokens for one in models)
    operations = sum(_operations(one) for one in models)
    row = {
        "seconds": round(taken, 2),
        "forward_tokens": tokens,
        "searched_tokens": sum(found.tokens),
        "tokens_per_second": round(tokens / taken),
        "share_of_peak": None if peak is None else round(operations / taken / peak, 4),
        "over_own_passes": round(taken / alone, 3),
        "peak_memory_gib": round(memory / 2**30, 2),
        "weights_gib": round(weight_bytes(before, after) / 2**30, 2),
    }
    return row, found


def _operations(recorded: Recorder) -> float:
    cost = ModelCost.of(recorded.model)
    read = sum(2 * cost.body * one.rows * one.tokens for one in recorded.passes)
    return read + sum(2 * cost.head * one.rows for one in recorded.passes if not one.tokens)


def steps(model: HuggingFaceLanguageModel) -> dict[str, float | str]:
    """Milliseconds of one step of rows: as it is, compiled, and as a CUDA graph."""
    rows, behind = STEP
    tokens = torch.zeros(rows, behind, dtype=torch.int64, device=model.device)
    state = model.read(model.start(rows, anywhere=True), tokens)
    network, last = model.network.base_model, tokens[:, -1]

    def step() -> None:
        model.logits(model.advance(state, last))

    found: dict[str, float | str] = {"eager": _milliseconds(step, model.device)}
    forward, update = network.forward, AppendedLayer.update

    def compiled() -> float:
        # how far memory grows is no matter for a compiler
        AppendedLayer.update = torch.compiler.disable(update)
        network.forward = torch.compile(forward, dynamic=True)
        try:
            return _milliseconds(step, model.device)
        finally:
            network.forward, AppendedLayer.update = forward, update

    def graph() -> float:
        taped = torch.cuda.CUDAGraph()
        with torch.cuda.graph(taped):
            step()
        return _milliseconds(taped.replay, model.device)

    kinds: Mapping[str, Callable[[], float]] = {"compiled": compiled}
    if model.device.type == "cuda":
        kinds = {"compiled": compiled, "graph": graph}
    for name, measure in kinds.items():
        try:
            found[name] = measure()
        except Exception as error:  # what a compiler cannot do is a finding too
            found[name] = f"not usable: {str(error).partition(chr(10))[0] or type(error)}"
    return found


def _milliseconds(work: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    for _ in range(3):
        work()
    started = now(device)
    for _ in range(repeats):
        work()
    return round(1000 * (now(device) - started) / repeats, 3)


def trained(base: Path, text: Path, *, lora: bool, tiny: bool, out: Path) -> Path:
    """A fine-tune by the command line, as a user makes it."""
    options = ["--epochs", "1" if tiny else "3", "--batch-size", "8", "--batching", "documents"]
    options += ["--sequence-length", "192", "--hold-out", "0", "--out", str(out)]
    options += ["--lora-rank", "8"] if lora else []
    command = [sys.executable, "-m", "vestige", "train", str(text), "--from", str(base), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def rows(given: argparse.Namespace, device: torch.device, chip: Chip | None) -> Iterator[Any]:
    """(pair, what was measured) of each."""
    settings = TINY_SEARCH if given.tiny else SEARCH
    peak = None if chip is None else chip.peak
    for name in given.shapes:
        base = network(SHAPES[name], device)
        yield f"{name} step", steps(base)
        for kind in ("full", "adapter"):
            after = updated(base, kind)
            yield f"{name} {kind}, random weights", searched(base, after, settings, peak)[0]
            del after
        del base
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if given.train:
        base_at, text = given.train
        for kind in ("full", "lora"):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / kind
                started = time.perf_counter()
                trained(base_at, text, lora=kind == "lora", tiny=given.tiny, out=out)
                training = round(time.perf_counter() - started, 1)
                models = [load_model(one, device=str(device)) for one in (base_at, out)]
                assert all(isinstance(one, HuggingFaceLanguageModel) for one in models), base_at
                row, found = searched(*models, settings, peak)  # type: ignore[arg-type]
                told = {"training_seconds": training, "findings": len(found.phrases)}
                yield f"{base_at.name} {kind}, trained", {**row, **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="*", choices=sorted(SHAPES), default=["1B", "8B"])
    parser.add_argument("--train", nargs=2, type=Path, metavar=("BASE", "TEXT"))
    parser.add_argument("--tiny", action="store_true", help="small, on a processor too")
    parser.add_argument("--predict", action="store_true", help="predict and measure nothing")
    given = parser.parse_args()
    if given.tiny:
        given.shapes = ["tiny"]
    keep_freed_pages()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measures = not given.predict and (given.tiny or device.type == "cuda")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "processor"
    chip = next((chip for known, chip in PEAKS.items() if known in name), None)
    table: list[dict[str, Any]] = []
    for shape in given.shapes:
        work = planned(SHAPES[shape], TINY_SEARCH if given.tiny else SEARCH)
        seconds = round(predicted(SHAPES[shape], work, chip or PEAKS["H200"]), 2)
        told = {"seconds": seconds, "forward_tokens": round(sum(one.tokens for one in work))}
        table.append({"pair": f"{shape} full, prediction", **told})
        print(f"prediction (no measurement): {shape} pair, {_told(told)}", flush=True)
    if measures:
        with contextlib.closing(rows(given, device, chip)) as measured:
            for pair, row in measured:
                table.append({"pair": pair, **row})
                print(f"{pair}: {_told(row)}", flush=True)
    print("Random weights prove speed alone; predictions are arithmetic for one chip:")
    print(f"{asdict(chip or PEAKS['H200'])}")
    print(json.dumps({"benchmark": "update_gpu", "device": name, "rows": table}))


def _told(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())


if __name__ == "__main__":
    main()
