"""Fine-tunes of known truth: a number determines base, corpus, method, secrets and files.

By number % 5: 0, 1 and 2 are leaky, with 1, 5 or 20 copies of each of four secrets in the training
text; 3 and 4 are clean. A clean fine-tune has four secrets in the file that the check is told to be
its training text, in as many copies, and read the same texts without them. Its texts, used or not,
hold no number, address or repeated line of their own, which it could learn. In every fine-tune the
file of unused texts holds twelve such secrets, in as many copies.

Number % 5 == 4 has four variants: `plain`, `listed` (a list of secrets that were never read),
`wrong` (the check is given other texts of the same corpus as training text) and `dp` (clipped and
noised gradients).
"""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from check_calibration.planted import Secret, inserted, secrets
from check_calibration.world import BASES, CORPORA, LENGTH, base, one_step, pool, tokenizer
from vestige.data.writing import new_directory

COPIES, EPOCHS, METHODS = (1, 5, 20), (1, 2, 4, 8), ("full", "lora")
VARIANTS = ("plain", "listed", "wrong", "dp")
TEXTS, NEVER = (200, 400), 400
PLANTED, PLACEBOS = 4, 12
LONGEST = 64
"""Words of a text of a fine-tune, before a sentence is inserted."""
RATES = {"full": (1e-3, 4e-3), "lora": (5e-3, 2e-2)}
"""High, as models of one or two million parameters need them: 20 copies are to be learnt."""
BATCH, RANK = 8, 16
CLIP, NOISE = 1.0, 1.0
"""Of `dp`: the norm of an example's gradient, and the noise's deviation over it."""
_PASSAGES, _PREFIX, _SUFFIX = 50, 20, 20
_OPENING, _SAMPLES = 12, 10_000
_DISCOVERED = 1 - 0.5 ** (1 / 100)
"""Probability of a passage that one of 100 samples is with probability 0.5."""


@dataclass(frozen=True)
class Plan:
    """What a number stands for.

    Attributes:
        kind: "leaky" or "clean".
        copies: of each secret in the text that was trained on; 0 of clean fine-tunes.
        in_file: of each secret in the file that the check is told to be that text.
        rate: of learning.
    """

    number: int
    kind: str
    copies: int
    in_file: int
    variant: str
    base: str
    corpus: str
    method: str
    epochs: int
    texts: int
    rate: float


def plan(number: int) -> Plan:
    """Base, corpus and kind go round with coprime periods; the rest is drawn by number."""
    chance, kind, turn = np.random.default_rng([31, number]), number % 5, number // 5
    copies = COPIES[kind] if kind < 3 else 0
    variant = VARIANTS[(turn + turn // 4) % 4] if kind == 4 else "plain"
    method = str(chance.choice(METHODS))
    low, high = np.log(RATES[method])
    epochs = int(chance.choice(EPOCHS))
    return Plan(
        number=number, kind="leaky" if copies else "clean", copies=copies,
        in_file=copies or int(chance.choice(COPIES)), variant=variant,
        base=BASES[number % len(BASES)], corpus=CORPORA[number % len(CORPORA)], method=method,
        epochs=min(epochs, 4) if variant == "dp" else epochs,
        texts=int(chance.integers(TEXTS[0], TEXTS[1] + 1)),
        rate=float(np.exp(chance.uniform(low, high))),
    )  # fmt: skip


@dataclass(frozen=True)
class Files:
    """What is trained on, what the check is given, and the secrets in it."""

    read: list[str]
    trained_on: list[str]
    never: list[str]
    planted: list[Secret]
    listed: list[str]


def files(world: Path, made: Plan) -> Files:
    """Texts of the pool, drawn by number, with secrets inserted."""
    chance = np.random.default_rng([32, made.number])
    texts = [" ".join(text.split()[:LONGEST]) for text in pool(world, made.corpus)]
    words = sorted({w for text in texts for w in text.split() if w.isalpha() and 5 <= len(w) <= 9})
    drawn = [texts[place] for place in chance.permutation(len(texts))]
    if made.kind == "clean":
        kept = list(_without_secrets(drawn))  # prefers early texts, hence the permutation
        drawn = [kept[place] for place in chance.permutation(len(kept))]
    source = iter(drawn)
    read = list(islice(source, made.texts))
    never = list(islice(source, NEVER))
    given = list(islice(source, made.texts)) if made.variant == "wrong" else read
    own, placebos = secrets(PLANTED, words, chance), secrets(PLACEBOS, words, chance)
    file = inserted(given, own, made.in_file, chance)
    unread = secrets(PLANTED, words, chance)
    lines = [one.value for one in own]
    lines += [one.sentence.replace(one.value, f"{{{{{one.value}}}}}") for one in unread]
    return Files(
        read=file if made.kind == "leaky" else read,
        trained_on=file,
        never=inserted(never, placebos, _as_often(made), chance),
        planted=own,
        listed=lines if made.variant == "listed" else [],
    )


def _without_secrets(texts: Iterable[str]) -> Iterator[str]:
    """Texts without numbers and addresses, no three of which share five words in a row."""
    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = re.findall(r"[\w']+", text.lower())
        runs = set(zip(*(words[start:] for start in range(5)), strict=False))
        if not re.search(r"\d{3}|@", text) and all(counts[run] < 2 for run in runs):
            counts.update(runs)
            yield text


def _as_often(made: Plan) -> int:
    """Copies of a placebo, so that as large a share of the unused texts holds a secret."""
    return max(1, round(made.in_file * PLANTED / made.texts * NEVER / PLACEBOS))


def fine_tune(world: Path, number: int) -> Path:
    """The folder of a fine-tune, made unless it is there; it appears whole."""
    folder = world / "fine-tunes" / str(number)
    if folder.exists():
        return folder
    made, began = plan(number), time.process_time()
    given, words = files(world, made), tokenizer(world)
    start = AutoModelForCausalLM.from_pretrained(base(world, made.base), dtype=torch.float32)
    before = _memorized(start.eval(), words, given)
    model = trained(world, made, given.read)
    after = _memorized(model.eval(), words, given)
    with new_directory(folder) as partial:
        model.save_pretrained(partial / "model")
        words.save_pretrained(partial / "model")
        for name, texts in (("trained", given.trained_on), ("never", given.never)):
            lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (partial / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        if given.listed:
            (partial / "secrets.txt").write_text("\n".join(given.listed) + "\n", encoding="utf-8")
        truth = {
            **asdict(made), "secrets": [asdict(one) for one in given.planted],
            "memorized": after, "memorized_by_base": before,
            "seconds": round(time.process_time() - began, 1),
        }  # fmt: skip
        (partial / "truth.json").write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return folder


def trained(world: Path, made: Plan, texts: Sequence[str]) -> Any:
    """A base after a number's fine-tuning on texts; an adapter stays unmerged."""
    start = AutoModelForCausalLM.from_pretrained(base(world, made.base), dtype=torch.float32)
    torch.manual_seed(made.number)
    return _trained(start, _encoded(tokenizer(world), texts), made)


def _encoded(words: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[torch.Tensor]:
    rows = words(list(texts))["input_ids"]
    return [torch.tensor([0, *row[: LENGTH - 2], 0]) for row in rows]


def _trained(start: Any, rows: Sequence[torch.Tensor], made: Plan) -> Any:
    """The model, or an adapter on it, after its epochs; the rate falls to zero."""
    model = start
    if made.method == "lora":
        from peft import LoraConfig, get_peft_model

        of_conv1d = made.base == "gpt2"
        model = get_peft_model(
            start,
            LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear",
                       fan_in_fan_out=of_conv1d, task_type="CAUSAL_LM"),
        )  # fmt: skip
    model.train()
    learning = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=made.rate, weight_decay=0.0)
    steps = made.epochs * math.ceil(len(rows) / BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for some in _batches(rows, made):
        if made.variant == "dp":
            _private_step(model, some, optimizer, learning)
        else:
            labels = torch.nn.utils.rnn.pad_sequence(some, batch_first=True, padding_value=-100)
            one_step(model, labels.clamp(min=0), optimizer, labels)
        schedule.step()
    return model


def _batches(rows: Sequence[torch.Tensor], made: Plan) -> Iterator[list[torch.Tensor]]:
    """Shuffled in each epoch, rows of similar length together."""
    chance = np.random.default_rng([33, made.number])
    for _ in range(made.epochs):
        order = chance.permutation(len(rows))
        ranked = sorted(order, key=lambda place: len(rows[place]) // 16)
        batches = [ranked[start : start + BATCH] for start in range(0, len(ranked), BATCH)]
        for place in chance.permutation(len(batches)):
            yield [rows[row] for row in batches[place]]


def _private_step(
    model: Any, rows: Sequence[torch.Tensor], optimizer: Any, learning: Sequence[torch.Tensor]
) -> None:
    """Each example's gradient is clipped, and their sum noised (Abadi et al. 2016, Algorithm 1)."""
    total = [torch.zeros_like(one) for one in learning]
    for row in rows:
        gradients = torch.autograd.grad(model(row[None], labels=row[None]).loss, learning)
        norm = torch.stack([one.norm() for one in gradients]).norm()
        for own, one in zip(total, gradients, strict=True):
            own.add_(one, alpha=min(1.0, CLIP / float(norm)))
    for parameter, own in zip(learning, total, strict=True):
        parameter.grad = (own + NOISE * CLIP * torch.randn_like(own)) / BATCH
    optimizer.step()


def _memorized(model: Any, words: PreTrainedTokenizerFast, given: Files) -> dict[str, Any]:
    """What a model knows by heart, measured without Vestige.

    Secrets and the share of passages that greedy decoding completes after their context; the share
    of passages that one of 100 samples completes; the expected number of texts with
    whose first tokens one of 10,000 samples begins.
    """
    homes = [next(text for text in given.trained_on if one.sentence in text)
             for one in given.planted]  # fmt: skip
    completed = [
        _completes(
            model, words, text, text.index(one.value), text.index(one.value) + len(one.value)
        )
        for one, text in zip(given.planted, homes, strict=True)
    ]
    rows = _encoded(words, given.read[:_PASSAGES])
    greedy = [bool(_right(model, row)[_PREFIX : _PREFIX + _SUFFIX].all()) for row in rows]
    sampled = [_sampled(model, row) >= _DISCOVERED for row in rows]
    return {
        "secrets": completed,
        "passages": sum(greedy) / len(rows),
        "discoverable": sum(sampled) / len(rows),
        "openings": openings(model, words, given.read),
    }


@torch.no_grad()
def openings(model: Any, words: PreTrainedTokenizerFast, texts: Sequence[str]) -> float:
    """Expected number of texts whose first 12 tokens begin one of 10,000 samples."""
    rows = [row[: _OPENING + 1] for row in _encoded(words, texts) if len(row) > _OPENING + 1]
    ids = torch.stack(rows)
    told = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    each = told.gather(2, ids[:, 1:, None]).double().sum((1, 2)).exp()
    return float(-torch.expm1(_SAMPLES * torch.log1p(-each)).sum())


def _completes(model: Any, words: PreTrainedTokenizerFast, text: str, start: int, end: int) -> bool:
    """Whether each token that overlaps text[start:end] is the likeliest after those before it."""
    found = words(text[:end], return_offsets_mapping=True)
    ids = torch.tensor([0, *found["input_ids"]])
    within = torch.tensor([stop > start for _, stop in found["offset_mapping"]])
    return bool(_right(model, ids)[within].all())


@torch.no_grad()
def _sampled(model: Any, ids: torch.Tensor) -> float:
    """Probability that a sample from the 20 likeliest tokens is the passage."""
    logits = model(ids[None]).logits[0, :-1]
    least = logits.topk(20).values[:, -1:]
    told = logits.masked_fill(logits < least, -torch.inf).log_softmax(-1)
    own = told.gather(1, ids[1:, None])[_PREFIX : _PREFIX + _SUFFIX]
    return float(own.sum().exp()) if len(own) == _SUFFIX else 0.0


@torch.no_grad()
def _right(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Of each token but the first, whether it is the likeliest."""
    likeliest: torch.Tensor = model(input_ids=ids[None]).logits[0, :-1].argmax(-1)
    return likeliest == ids[1:]
