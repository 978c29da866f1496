"""What a training step costs: private ones, regularizers and ours against the plainest there is.

All ratios are of times in turns in one run, on one thread in processor time, relative to
`plain_step` with update on the same batch; memory is the peak of two steps in a process of its own.

- `lstm`: DP-SGD by sequence on two LSTM layers of 550, beside Opacus' DPLSTM.
- `adapter`: the same on a LoRA adapter on all linear layers of a Llama of SmolLM2-135M's shape,
  beside Opacus (hooks, ghost clipping) and fastDP where they are installed; `users` clips four rows
  of each user as one.
- `whole`: the same with all weights of a Llama of 8 layers of width 256.
- `federated`: a round of DP-FedAvg beside plain steps over the same texts.
- `regularizers`: adversarial, triplet and goldfish steps.
- `loop`: `training.loop.train` beside a minimal loop in PyTorch; the ratio is of times.

    python benchmarks/training_steps.py [PART ...] [--times 5]

With vectors of 256 bits: ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
MKL_ENABLE_INSTRUCTIONS=AVX2.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from harness import Row, Run, Work, main, paired, peak_mib
from networks import llama
from torch import nn
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
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import Batch
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.presets import preset
from vestige.training.sequences import SequenceBatches, Sequences
from vestige.training.steps import plain_step

LLAMAS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 64, "inner": 128, "layers": 2, "heads": 4, "vocab_size": 512,
             "rows": 4, "length": 16},
    "whole": {"width": 256, "inner": 1024, "layers": 8, "heads": 4, "vocab_size": 8192,
              "rows": 16, "length": 64},
    "adapter": {"width": 576, "inner": 1536, "layers": 30, "heads": 9, "vocab_size": 49152,
                "num_key_value_heads": 3, "tie_word_embeddings": True, "rows": 32, "length": 128},
}  # fmt: skip
LSTM = {"words": 10_000, "hidden": 550, "rows": 32, "length": 20}
TINY_LSTM = {"words": 200, "hidden": 16, "rows": 8, "length": 6}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
USERS = 4
"""Rows of a user, where users are clipped."""


def measured(run: Run, makers: Mapping[str, Callable[[], Work]], repeats: int) -> list[Row]:
    """Time and, unless quick, memory of each kind relative to the first, in pairs with it."""
    rows, base = [], next(iter(makers))
    floor = None if run.quick else peak_mib(partial(two_calls, makers[base]))
    for name in list(makers)[1:]:
        ratio = paired({base: makers[base](), name: makers[name]()}, repeats)[name]
        row = {"step": name, "time": ratio["ratio"], "fastest": ratio["fastest"]}
        if floor is not None:
            row["memory"] = peak_mib(partial(two_calls, makers[name])) / floor
        rows.append(row | {f"seconds of {base}": ratio["seconds"] / ratio["ratio"]})
    return rows


def two_calls(make: Callable[[], Work]) -> Work:
    """What is weighed."""
    work = make()
    return lambda: (work(), work())


SGD = partial(torch.optim.SGD, lr=0.1)
ADAMW = partial(torch.optim.AdamW, lr=1e-4)


def updating(model: LanguageModel, step: Any, batch: Batch, optimizer: Any = SGD) -> Work:
    """A step of ours on a batch, and its update."""
    optimizer = optimizer([one for one in model.parameters() if one.requires_grad])

    def take() -> None:
        step(model, batch, None)
        optimizer.step()

    return take


def dp_sgd(batch: Batch, unit: Any = "sequence") -> DPSGDStep:
    """The private step whose cost is measured."""
    return DPSGDStep(
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_units=len(batch.inputs),
        sequence_length=batch.inputs.shape[1],
        unit=unit,
    )


# LSTM --------------------------------------------------------------------------------------------


def lstm(run: Run) -> list[Row]:
    """A private step of an LSTM, ours and Opacus'."""
    sizes = run.size(LSTM, TINY_LSTM)
    kinds = ("plain", "private", *(("opacus", "opacus_ghost") if find_spec("opacus") else ()))
    makers = {kind: partial(lstm_step, kind, sizes) for kind in kinds}
    return measured(run, makers, run.times(12, 1))


def lstm_step(kind: str, sizes: Mapping[str, int]) -> Work:
    """One kind of step on a fresh network and a batch whose words are as unequal as a text's."""
    drawn = np.random.default_rng(0).zipf(1.3, (sizes["rows"], sizes["length"] + 1))
    ids = torch.from_numpy(drawn % sizes["words"])
    lengths = torch.full((sizes["rows"],), sizes["length"])
    batch = Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), lengths=lengths)
    if kind.startswith("opacus"):
        return opacus(DPLSTMModel(sizes), batch, ghost=kind == "opacus_ghost")
    step = dp_sgd(batch) if kind == "private" else plain_step()
    return updating(lstm_model(sizes["words"], sizes["hidden"]), step, batch)


def lstm_model(words: int, hidden: int, layers: int = 2) -> LanguageModel:
    """Random weights."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, words))))
    shape = LSTMConfig(layers=layers, embedding_size=hidden, hidden_size=hidden)
    return new_model(vocabulary, shape, seed=0).train()


class DPLSTMModel(nn.Module):
    """The same network with Opacus' recurrent layers."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        from opacus.layers import DPLSTM

        super().__init__()
        words, hidden = sizes["words"], sizes["hidden"]
        self.embedding = nn.Embedding(words, hidden)
        self.lstm = DPLSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def opacus(network: nn.Module, batch: Batch, *, ghost: bool, optimizer: Any = SGD) -> Work:
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
    learning = [one for one in module.parameters() if one.requires_grad]
    kind = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    optimizer = kind(optimizer(learning), expected_batch_size=len(batch.inputs), **settings)
    criterion: Any = nn.CrossEntropyLoss()
    if ghost:
        criterion = DPLossFastGradientClipping(module, optimizer, criterion)

    def take() -> None:
        optimizer.zero_grad()
        logits = logits_of(module, batch)
        more = {"shape": logits.shape} if ghost else {}
        criterion(logits.flatten(0, 1), batch.targets.flatten(), **more).backward()
        optimizer.step()

    return take


def logits_of(network: Any, batch: Batch) -> torch.Tensor:
    """Of an LSTM or a Llama; Opacus needs the latter's positions for every row."""
    if not hasattr(getattr(network, "_module", network), "config"):
        return network(batch.inputs)
    rows = torch.arange(batch.inputs.shape[1]).repeat(len(batch.inputs), 1)
    return network(input_ids=batch.inputs, position_ids=rows, use_cache=False).logits.float()


# Llama -------------------------------------------------------------------------------------------


def adapter(run: Run) -> list[Row]:
    """A private step of a LoRA adapter of rank 8 on all linear layers."""
    return llama_steps(run, run.size("adapter", "tiny"), rank=8)


def whole(run: Run) -> list[Row]:
    """A private step of all weights."""
    return llama_steps(run, run.size("whole", "tiny"), rank=0)


def llama_steps(run: Run, shape: str, rank: int) -> list[Row]:
    """Steps of one network, those of libraries that are here included."""
    kinds = ["plain", "private", "users"]
    kinds += ["opacus", "opacus_ghost"] if find_spec("opacus") else []
    kinds += ["fastdp"] if find_spec("fastDP") else []
    makers = {kind: partial(llama_step, kind, shape, rank) for kind in kinds}
    return measured(run, makers, run.times(5, 1))


def llama_step(kind: str, shape: str, rank: int) -> Work:
    """One kind of step on a fresh network."""
    sizes = dict(LLAMAS[shape])
    rows, length = sizes.pop("rows"), sizes.pop("length")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat"]), size=265)
    model = llama(vocabulary, **sizes)
    if rank:
        model = add_lora(model, rank=rank, target_modules=LINEAR)
    ids = torch.randint(sizes["vocab_size"], (rows, length + 1))
    owners = torch.arange(rows) // USERS if kind == "users" else None
    batch = Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), users=owners)
    model.train()
    if kind.startswith("opacus"):
        return opacus(model.network, batch, ghost=kind == "opacus_ghost", optimizer=ADAMW)
    if kind == "fastdp":
        return fastdp(model.network, batch)
    unit = "user" if kind == "users" else "sequence"
    step = plain_step() if kind == "plain" else dp_sgd(batch, unit)
    return updating(model, step, batch, ADAMW)


def fastdp(network: Any, batch: Batch) -> Work:
    """fastDP's book-keeping, in the mode that it chooses."""
    from fastDP import PrivacyEngine

    optimizer = ADAMW([one for one in network.parameters() if one.requires_grad])
    rows = len(batch.inputs)
    PrivacyEngine(
        network, batch_size=rows, sample_size=100 * rows, noise_multiplier=1.0, max_grad_norm=1.0,
        epochs=1, clipping_fn="Abadi", clipping_mode="MixOpt", loss_reduction="mean",
    ).attach(optimizer)  # fmt: skip

    def take() -> None:
        cross_entropy(logits_of(network, batch).flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return take


# Other steps, and the loop -----------------------------------------------------------------------


def sequences(words: int, users: int, texts: int, length: int) -> Sequences:
    """Texts of one length of some users."""
    count = users * texts
    drawn = np.random.default_rng(0).zipf(1.3, count * length) % words
    owners = (np.arange(count) % users).astype(np.int32)
    names = tuple(f"user{i}" for i in range(users))
    data = EncodedCorpus(drawn.astype(np.int32), np.arange(count + 1) * length, owners, names)
    return Sequences.of(data, length=length)


def federated(run: Run) -> list[Row]:
    """A round of DP-FedAvg, ten users of 48 texts, beside plain steps of 8 texts over them all."""
    words, hidden = run.size((5_000, 128), (100, 8))
    users, texts = run.size((10, 48), (2, 16))
    read = sequences(words, users, texts, 20)
    batch = read.batch(np.arange(users * texts), 1, torch.device("cpu"))
    step = DPFedAvgStep(
        noise_multiplier=1.0, max_grad_norm=1.0, expected_units=users,
        local_batch_size=8, local_learning_rate=1.0,
    )  # fmt: skip
    model = lstm_model(words, hidden, layers=1)
    optimizer, plain = torch.optim.SGD(model.parameters(), lr=1.0), plain_step()

    def steps() -> None:
        for chosen in torch.randperm(len(batch.inputs)).split(8):
            plain(model, batch.select(chosen), None)
            optimizer.step()

    works = {"plain": steps, "dp_fedavg": updating(lstm_model(words, hidden, 1), step, batch)}
    return [{"step": name, **found} for name, found in paired(works, run.times(12, 1)).items()]


def regularizers(run: Run) -> list[Row]:
    """Steps of the regularizers on two LSTM layers of 550, 32 sequences of 20 tokens."""
    sizes = run.size(LSTM, TINY_LSTM)
    users = run.size(100, 4)
    read = sequences(sizes["words"], users, 10, sizes["length"])
    batches = SequenceBatches(read, sizes["rows"], "documents", 1, torch.device("cpu"))
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
    works = {
        name: updating(lstm_model(sizes["words"], sizes["hidden"]), step, batch)
        for name, step in steps.items()
    }
    return [{"step": name, **found} for name, found in paired(works, run.times(12, 1)).items()]


def loop(run: Run) -> list[Row]:
    """Ten steps of the preset "ptb-lstm" by `train` and by a loop that anyone would write first."""
    words, hidden, rows, length = run.size((10_000, 200, 20, 20), (200, 200, 4, 20))
    drawn = np.random.default_rng(0).zipf(1.3, 10 * rows * length + 1) % words
    tokens = drawn.astype(np.int32)
    config = replace(preset("ptb-lstm").training, epochs=1, precision="float32", batch_size=rows)
    data = EncodedCorpus(tokens, np.array([0, len(tokens)]))

    def plainest() -> None:
        model: Any = lstm_model(words, hidden)
        learning = list(model.parameters())
        optimizer = torch.optim.SGD(learning, lr=config.learning_rate)
        inputs, targets = (
            torch.from_numpy(part.astype(np.int64)).view(rows, -1)
            for part in (tokens[:-1], tokens[1:])
        )
        state = None
        for first in range(0, inputs.shape[1], length):
            part = slice(first, first + length)
            outputs, state = model.lstm(model.embedding(inputs[:, part]), state)
            logits = model.head(outputs).flatten(0, 1)
            optimizer.zero_grad()
            cross_entropy(logits, targets[:, part].flatten()).backward()
            nn.utils.clip_grad_norm_(learning, config.max_grad_norm)
            optimizer.step()
            state = tuple(one.detach() for one in state)

    ours = partial(train, data=data, config=config)
    works = {"minimal loop": plainest, "train": lambda: ours(lstm_model(words, hidden))}
    return [{"loop": name, **found} for name, found in paired(works, run.times(12, 1)).items()]


PARTS = {
    "lstm": lstm,
    "adapter": adapter,
    "whole": whole,
    "federated": federated,
    "regularizers": regularizers,
    "loop": loop,
}

if __name__ == "__main__":
    main("training_steps", __doc__, PARTS)
