"""What a training step costs: private ones, regularizers, and measurements between steps.

All ratios are of times of alternating runs, on one thread in processor time, relative to
`plain_step` with update on the same batch; memory is the peak of two steps in a new process.

- `lstm`: DP-SGD by sequence on two LSTM layers of 550, compared with Opacus' DPLSTM.
- `adapter`: the same on a LoRA adapter on all linear layers of a Llama of SmolLM2-135M's shape,
  compared with Opacus (hooks, ghost clipping) and fastDP where they are installed; `users` clips
  four rows of each user as one.
- `whole`: the same with all weights of a Llama of 8 layers of width 256, for three shapes of the
  batch, and of SmolLM2-135M's shape.
- `regularizers`: adversarial, triplet and goldfish steps.
- `callback`: a measurement of `LeakageCallback` in steps of the training that it interrupts, and
  from how many steps on the first and the last one take 3 %. LoRA of rank 16 on steps of 8 chats,
  40 canaries, 256 references; of `--model FOLDER` on `--chats FILE`, or of a small random network.

    python benchmarks/training_steps.py [PART ...] [--times 5]

With vectors of 256 bits: ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
MKL_ENABLE_INSTRUCTIONS=AVX2.
"""

import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from harness import Row, Run, Task, main, paired, peak_mib
from networks import llama, mean_loss, padded, trainable, with_lora
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.goldfish import GoldfishStep
from vestige.defences.regularizers import AdversarialStep, TripletStep
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.sequences import SequenceBatches, Sequences
from vestige.training.steps import plain_step

TINY = {"width": 64, "inner": 128, "layers": 2, "heads": 4, "vocab_size": 512}
SMALL = {"width": 256, "inner": 1024, "layers": 8, "heads": 4, "vocab_size": 8192}
SMOLLM2 = {
    "width": 576, "inner": 1536, "layers": 30, "heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49_152, "tie_word_embeddings": True,
}  # fmt: skip
LSTM = {"words": 10_000, "hidden": 550, "rows": 32, "length": 20}
TINY_LSTM = {"words": 200, "hidden": 16, "rows": 8, "length": 6}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ROWS_OF_USER = 4


def measured(run: Run, makers: Mapping[str, Callable[[], Task]], repeats: int) -> list[Row]:
    """Time and, unless quick, memory of each kind of step relative to the first, in pairs."""
    rows, base = [], next(iter(makers))
    base_mib = None if run.quick else peak_mib(partial(two_calls, makers[base]))
    for name in list(makers)[1:]:
        ratio = paired({base: makers[base](), name: makers[name]()}, repeats)[name]
        row = {"step": name, "time": ratio["ratio"], "fastest": ratio["fastest"]}
        if base_mib is not None:
            row["memory"] = peak_mib(partial(two_calls, makers[name])) / base_mib
        rows.append(row | {f"seconds of {base}": ratio["seconds"] / ratio["ratio"]})
    return rows


def two_calls(make: Callable[[], Task]) -> Task:
    """The task whose memory is measured."""
    task = make()
    return lambda: (task(), task())


SGD = partial(torch.optim.SGD, lr=0.1)
ADAMW = partial(torch.optim.AdamW, lr=1e-4)


def updating(model: LanguageModel, step: Any, batch: Batch, optimizer: Any = SGD) -> Task:
    """A step of Vestige on a batch, and its update."""
    optimizer = optimizer(trainable(model))

    def update() -> None:
        step(model, batch, None)
        optimizer.step()

    return update


def dp_sgd(batch: Batch, unit: Any = "sequence") -> DPSGDStep:
    """The private step."""
    return DPSGDStep(
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_units=len(batch.inputs),
        sequence_length=batch.inputs.shape[1],
        unit=unit,
    )


# LSTM --------------------------------------------------------------------------------------------


def lstm(run: Run) -> list[Row]:
    """A private step of an LSTM by Vestige and by Opacus."""
    sizes = run.size(LSTM, TINY_LSTM)
    kinds = ("plain", "private", *(("opacus", "opacus_ghost") if find_spec("opacus") else ()))
    makers = {kind: partial(lstm_step, kind, sizes) for kind in kinds}
    return measured(run, makers, run.times(12, 1))


def lstm_step(kind: str, sizes: Mapping[str, int]) -> Task:
    """One kind of step on a new network and a batch of words with a text's frequencies."""
    words = np.random.default_rng(0).zipf(1.3, (sizes["rows"], sizes["length"] + 1))
    ids = torch.from_numpy(words % sizes["words"])
    lengths = torch.full((sizes["rows"],), sizes["length"])
    batch = Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), lengths=lengths)
    if kind.startswith("opacus"):
        return opacus(DPLSTMModel(sizes), batch, ghost=kind == "opacus_ghost")
    step = dp_sgd(batch) if kind == "private" else plain_step()
    return updating(lstm_model(sizes), step, batch)


def lstm_model(sizes: Mapping[str, int]) -> LanguageModel:
    """Two layers with random weights."""
    names = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, sizes["words"]))))
    shape = LSTMConfig(layers=2, embedding_size=sizes["hidden"], hidden_size=sizes["hidden"])
    return new_model(names, shape, seed=0).train()


class DPLSTMModel(nn.Module):
    """The same network with Opacus' recurrent layers."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        from opacus.layers import DPLSTM

        super().__init__()
        words, hidden = sizes["words"], sizes["hidden"]
        self.embedding = nn.Embedding(words, hidden)
        self.lstm = DPLSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, words)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def opacus(network: nn.Module, batch: Batch, *, ghost: bool, optimizer: Any = SGD) -> Task:
    """A step of Opacus: hooks that form every example's gradient, or ghost clipping."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    if ghost:
        module: Any = GradSampleModuleFastGradientClipping(network, max_grad_norm=1.0)
    else:
        module = GradSampleModule(network)
    wrapper = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    optimizer = optimizer(trainable(module))
    optimizer = wrapper(optimizer, expected_batch_size=len(batch.inputs), **settings)
    criterion: Any = nn.CrossEntropyLoss()
    if ghost:
        criterion = DPLossFastGradientClipping(module, optimizer, criterion)

    def update() -> None:
        optimizer.zero_grad()
        logits = logits_of(module, batch)
        more = {"shape": logits.shape} if ghost else {}
        criterion(logits.flatten(0, 1), batch.targets.flatten(), **more).backward()
        optimizer.step()

    return update


def logits_of(network: Any, batch: Batch) -> Tensor:
    """Logits of an LSTM or a Llama; Opacus needs the latter's positions for every row."""
    if not hasattr(getattr(network, "_module", network), "config"):
        return network(batch.inputs)
    positions = torch.arange(batch.inputs.shape[1]).repeat(len(batch.inputs), 1)
    outputs = network(input_ids=batch.inputs, position_ids=positions, use_cache=False)
    return outputs.logits.float()


# Llama -------------------------------------------------------------------------------------------


def adapter(run: Run) -> list[Row]:
    """A private step of a LoRA adapter of rank 8 on all linear layers."""
    return llama_steps(run, *run.size((SMOLLM2, 32, 128), (TINY, 4, 16)), rank=8)


def whole(run: Run) -> list[Row]:
    """A private step of all weights."""
    cases = [(SMALL, 16, 64), (SMALL, 4, 512), (SMALL, 64, 16), (SMOLLM2, 4, 64)]
    rows = []
    for shape, batch, length in run.size(cases, [(TINY, 4, 16)]):
        size = {"layers": shape["layers"], "rows": batch, "tokens": length}
        rows += [size | row for row in llama_steps(run, shape, batch, length, rank=0)]
    return rows


def llama_steps(run: Run, shape: dict[str, Any], rows: int, length: int, rank: int) -> list[Row]:
    """Steps of one network by Vestige and by the libraries that are installed."""
    kinds = ["plain", "private", "users"]
    kinds += ["opacus", "opacus_ghost"] if find_spec("opacus") else []
    kinds += ["fastdp"] if find_spec("fastDP") else []
    makers = {kind: partial(llama_step, kind, shape, rows, length, rank) for kind in kinds}
    return measured(run, makers, run.times(5, 1))


def llama_step(kind: str, shape: dict[str, Any], rows: int, length: int, rank: int) -> Task:
    """One kind of step on a new network."""
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat"]), size=265)
    model = llama(vocabulary, **shape)
    if rank:
        model = add_lora(model, rank=rank, target_modules=LINEAR)
    ids = torch.randint(shape["vocab_size"], (rows, length + 1))
    users = torch.arange(rows) // ROWS_OF_USER if kind == "users" else None
    batch = Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), users=users)
    model.train()
    if kind.startswith("opacus"):
        return opacus(model.network, batch, ghost=kind == "opacus_ghost", optimizer=ADAMW)
    if kind == "fastdp":
        return fastdp(model.network, batch)
    unit = "user" if kind == "users" else "sequence"
    step = plain_step() if kind == "plain" else dp_sgd(batch, unit)
    return updating(model, step, batch, ADAMW)


def fastdp(network: Any, batch: Batch) -> Task:
    """A step of fastDP's book-keeping, in the mode that it chooses."""
    from fastDP import PrivacyEngine

    optimizer, rows = ADAMW(trainable(network)), len(batch.inputs)
    PrivacyEngine(
        network, batch_size=rows, sample_size=100 * rows, noise_multiplier=1.0, max_grad_norm=1.0,
        epochs=1, clipping_fn="Abadi", clipping_mode="MixOpt", loss_reduction="mean",
    ).attach(optimizer)  # fmt: skip

    def update() -> None:
        cross_entropy(logits_of(network, batch).flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


# Regularizers ------------------------------------------------------------------------------------


def regularizers(run: Run) -> list[Row]:
    """Steps of the regularizers on two LSTM layers of 550, 32 sequences of 20 tokens."""
    sizes, users = run.size(LSTM, TINY_LSTM), run.size(100, 4)
    count, length = 10 * users, sizes["length"]
    words = np.random.default_rng(0).zipf(1.3, count * length) % sizes["words"]
    users_of = (np.arange(count) % users).astype(np.int32)
    names = tuple(f"user{i}" for i in range(users))
    data = EncodedCorpus(words.astype(np.int32), np.arange(count + 1) * length, users_of, names)
    sequences = Sequences.of(data, length=length)
    batches = SequenceBatches(sequences, sizes["rows"], "documents", 1, torch.device("cpu"))
    steps = {
        "plain": plain_step(),
        "adversarial": AdversarialStep(
            weight=0.1, width=sizes["hidden"], users=users, seed=0, device="cpu"
        ),
        "triplet": TripletStep(weight=0.1, auxiliary=batches),
        "triplet, in-batch": TripletStep(weight=0.1),
        "goldfish": GoldfishStep(),
    }
    batch = next(batches.epoch(0, 0))
    tasks = {name: updating(lstm_model(sizes), step, batch) for name, step in steps.items()}
    return [{"step": name, **row} for name, row in paired(tasks, run.times(12, 1)).items()]


# LeakageCallback ---------------------------------------------------------------------------------

BUDGET = 0.03
CHAT = [
    {"role": "user", "content": "When does the train to the coast leave on Sunday morning?"},
    {"role": "assistant", "content": "At a quarter past nine, from the second platform."},
]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def callback(run: Run) -> list[Row]:
    """Seconds of a step and of measurements between steps, in both precisions."""
    from datasets import Dataset

    from vestige.integrations.planting import plant

    network, tokenizer = chat_model(run.options.model)
    model = with_lora(network, 16).train()
    data = Dataset.from_dict({"messages": [CHAT] * 100})
    if run.options.chats is not None:
        data = Dataset.from_json(str(run.options.chats))
    chats = [tokenizer.apply_chat_template(c, return_dict=False) for c in data["messages"][:8]]
    labels, rows = padded([ids[:256] for ids in chats]), []
    with tempfile.TemporaryDirectory() as folder:
        canaries = Path(folder) / "canaries"
        plant(data, out=canaries, coin_flip=run.size(40, 8))
        for precision in ("float32", "bfloat16"):
            args = SimpleNamespace(bf16=precision == "bfloat16", fp16=False)
            trainer = SimpleNamespace(model=model, processing_class=tokenizer, args=args)
            rows.append({"precision": precision, **callback_cost(run, trainer, labels, canaries)})
    return rows


def callback_cost(run: Run, trainer: Any, labels: Tensor, canaries: Path) -> Row:
    """The cost in one precision."""
    from vestige.integrations.trainer_audit import Baseline, TrainerAudit, training_precision

    optimizer = torch.optim.AdamW(trainable(trainer.model), lr=0.0)

    def step() -> None:
        with training_precision(trainer.args, trainer.model):
            loss = mean_loss(trainer.model, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    references = run.size(256, 100)
    measurement = TrainerAudit(trainer, canaries=canaries, references=references, seed=0)
    tasks: dict[str, Task] = {
        "step": step,
        "measurement": lambda: measurement.measure(Baseline(), last=False),
        "last measurement": lambda: measurement.measure(Baseline(), last=True),
    }
    timed = paired(tasks, run.times(3))
    first, last = (timed[name]["ratio"] for name in ("measurement", "last measurement"))
    return {
        "step, seconds": timed["step"]["seconds"],
        "measurement, steps": first,
        "last measurement, steps": last,
        "within 3 % from steps": (first + last) / BUDGET,
    }


def chat_model(folder: Path | None) -> tuple[Any, Any]:
    """(network, tokenizer) of a folder, or small random ones."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if folder is not None:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return network, AutoTokenizer.from_pretrained(folder)
    texts = Corpus.from_texts([message["content"] for message in CHAT])
    vocabulary = SubwordVocabulary.train_bpe(texts, size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    model = llama(vocabulary, width=64, inner=128, layers=2, heads=2, vocab_size=512)
    return model.network, vocabulary.tokenizer


def options(parser: Any) -> None:
    """The model and data of `callback`."""
    parser.add_argument("--model", type=Path, help="a folder with a chat template, for `callback`")
    parser.add_argument("--chats", type=Path, help='JSONL with "messages", for `callback`')


PARTS = {
    "lstm": lstm,
    "adapter": adapter,
    "whole": whole,
    "regularizers": regularizers,
    "callback": callback,
}

if __name__ == "__main__":
    main("training_steps", __doc__, PARTS, options)
