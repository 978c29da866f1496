"""How often the verdict of `check` is wrong. The unit is the fine-tune.

Each number is a fine-tune of known truth: it determines base, corpus, method, secrets and files.
By number % 5: 0, 1 and 2 are leaky, with 1, 5 or 20 copies of each of four secrets in the training
text; 3 and 4 are clean. A clean one has four secrets in the file that the check is told to be its
training text, in as many copies, and read the same texts without them. Its texts hold no number,
address or repeated line of their own, which it could learn. The file of unused texts always holds
twelve secrets, in as many copies. Number % 5 == 4 has four variants: `plain`, `listed` (a list of
secrets that were never read), `wrong` (other texts of the corpus as training text), `dp` (clipped
and noised gradients). A clean model that recites its texts, measured without Vestige, is counted
apart.

    VESTIGE_DATA=corpora python benchmarks/check_calibration.py --work DIR --rows FILE --times 300
    python benchmarks/check_calibration.py --rows FILE --work DIR --times 300 \\
        --write src/vestige/audits/check/calibration.json

The first command resumes; several may run at once with other `--first`. The last writes the counts
that the report of a check cites.
"""

import json
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from check_world import (
    BASES,
    CORPORA,
    DEVELOPMENT,
    LENGTH,
    Secret,
    base_of,
    inserted,
    plain_step,
    secrets,
    texts_of,
    vocabulary_of,
)
from harness import Row, Run, main, verdicts
from networks import padded
from transformers import AutoModelForCausalLM

import vestige
from vestige.claims import LEAK, UNDECIDED
from vestige.data.writing import new_directory

COPIES, EPOCHS, METHODS = (1, 5, 20), (1, 2, 4, 8), ("full", "lora")
VARIANTS = ("plain", "listed", "wrong", "dp")
TEXTS, NEVER, PLANTED, PLACEBOS, LONGEST = (200, 400), 400, 4, 12, 64
"""Least and most texts of a fine-tune, unused texts, secrets of both, words of a text."""
RATES = {"full": (1e-3, 4e-3), "lora": (5e-3, 2e-2)}
"""High, as models of one or two million parameters need them: 20 copies are to be learned."""
BATCH, RANK, CLIP, NOISE = 8, 16, 1.0, 1.0
PASSAGES, PREFIX, SUFFIX, OPENING, SAMPLES = 50, 20, 20, 12, 10_000
DISCOVERED = 1 - 0.5 ** (1 / 100)
"""Probability of a passage that one of 100 samples is with probability 0.5."""
RECITED = {"discoverable": 0.04, "openings": 1.0}
"""From which on a model is not clean: share of training passages that it generates (2 of 50), and
training texts that begin one of 10,000 samples."""


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


def files(run: Run, made: Plan) -> Files:
    """Texts of the pool, drawn by number, with secrets inserted."""
    chance = np.random.default_rng([32, made.number])
    texts = [" ".join(text.split()[:LONGEST]) for text in texts_of(run, made.corpus)[0]]
    words = sorted({w for text in texts for w in text.split() if w.isalpha() and 3 <= len(w) <= 9})
    words = [w for w in words if len(w) >= 5] if not run.quick else words
    drawn = [texts[place] for place in chance.permutation(len(texts))]
    if made.kind == "clean":
        kept = list(without_secrets(drawn))  # prefers early texts, hence the permutation
        drawn = [kept[place] for place in chance.permutation(len(kept))]
    source, never_count = iter(drawn), run.size(NEVER, 100)
    count = run.size(made.texts, 80)
    read, never = list(islice(source, count)), list(islice(source, never_count))
    given = list(islice(source, count)) if made.variant == "wrong" else read
    own, placebos = secrets(PLANTED, words, chance), secrets(PLACEBOS, words, chance)
    file = inserted(given, own, made.in_file, chance)
    unread = secrets(PLANTED, words, chance)
    # so that as large a share of the unused texts holds a secret
    often = max(1, round(made.in_file * PLANTED / made.texts * NEVER / PLACEBOS))
    lines = [one.value for one in own]
    lines += [one.sentence.replace(one.value, f"{{{{{one.value}}}}}") for one in unread]
    return Files(
        read=file if made.kind == "leaky" else read,
        trained_on=file,
        never=inserted(never, placebos, often, chance),
        planted=own,
        listed=lines if made.variant == "listed" else [],
    )


def without_secrets(texts: Iterable[str]) -> Iterator[str]:
    """Texts without numbers and addresses, no three of which share five words in a row."""
    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = re.findall(r"[\w']+", text.lower())
        runs = set(zip(*(words[start:] for start in range(5)), strict=False))
        if not re.search(r"\d{3}|@", text) and all(counts[run] < 2 for run in runs):
            counts.update(runs)
            yield text


# Fine-tunes --------------------------------------------------------------------------------------


def fine_tune(run: Run, number: int) -> Path:
    """The folder of a fine-tune, made unless it is there; it appears whole."""
    folder = run.folder / "fine-tunes" / str(number)
    if folder.exists():
        return folder
    made, words = plan(number), vocabulary_of(run)
    given, base = files(run, made), base_of(run, made.base)
    start = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    before = memorized(start, words, given)
    network = trained(run, made, given.read)
    after = memorized(network.eval(), words, given)
    with new_directory(folder) as partial:
        network.save_pretrained(partial / "model")
        words.save(partial / "model")
        for name, texts in (("trained", given.trained_on), ("never", given.never)):
            lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (partial / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        if given.listed:
            (partial / "secrets.txt").write_text("\n".join(given.listed) + "\n", encoding="utf-8")
        truth = {**asdict(made), "memorized": after, "memorized_by_base": before}
        (partial / "truth.json").write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return folder


def trained(run: Run, made: Plan, texts: Sequence[str]) -> Any:
    """A base after a number's fine-tuning on texts; an adapter stays unmerged."""
    network: Any = AutoModelForCausalLM.from_pretrained(
        base_of(run, made.base), dtype=torch.float32
    )
    torch.manual_seed(made.number)
    if made.method == "lora":
        from peft import LoraConfig, get_peft_model

        network = get_peft_model(
            network,
            LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear",
                       fan_in_fan_out=made.base == "gpt2", task_type="CAUSAL_LM"),
        )  # fmt: skip
    network.train()
    rows = encoded(vocabulary_of(run), texts)
    learning = [one for one in network.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=made.rate, weight_decay=0.0)
    epochs = run.size(made.epochs, 1)
    steps = epochs * math.ceil(len(rows) / BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for some in batches(rows, epochs, made.number):
        if made.variant == "dp":
            private_step(network, some, optimizer, learning)
        else:
            labels = padded(some)
            plain_step(network, labels.clamp(min=0), optimizer, labels)
        schedule.step()
    return network


def encoded(words: Any, texts: Sequence[str]) -> list[torch.Tensor]:
    """Ids between the marks of a document."""
    end = words.eos_id
    rows = words.encode_batch(list(texts))
    return [torch.tensor([end, *row[: LENGTH - 2], end]) for row in rows]


def batches(rows: Sequence[torch.Tensor], epochs: int, number: int) -> Iterator[list[torch.Tensor]]:
    """Shuffled in each epoch, rows of similar length together."""
    chance = np.random.default_rng([33, number])
    for _ in range(epochs):
        order = chance.permutation(len(rows))
        ranked = sorted(order, key=lambda place: len(rows[place]) // 16)
        parts = [ranked[start : start + BATCH] for start in range(0, len(ranked), BATCH)]
        for place in chance.permutation(len(parts)):
            yield [rows[row] for row in parts[place]]


def private_step(
    network: Any, rows: Sequence[torch.Tensor], optimizer: Any, learning: Sequence[torch.Tensor]
) -> None:
    """Each example's gradient is clipped, and their sum noised (Abadi et al. 2016, Algorithm 1)."""
    total = [torch.zeros_like(one) for one in learning]
    for row in rows:
        gradients = torch.autograd.grad(network(row[None], labels=row[None]).loss, learning)
        norm = torch.stack([one.norm() for one in gradients]).norm()
        for own, one in zip(total, gradients, strict=True):
            own.add_(one, alpha=min(1.0, CLIP / float(norm)))
    for parameter, own in zip(learning, total, strict=True):
        parameter.grad = (own + NOISE * CLIP * torch.randn_like(own)) / BATCH
    optimizer.step()


@torch.no_grad()
def memorized(network: Any, words: Any, given: Files) -> dict[str, Any]:
    """What a model recites, measured without Vestige.

    Secrets that greedy decoding completes after their context; the share of passages that one of
    100 samples completes; the expected number of texts with whose first tokens one of 10,000
    samples begins.
    """
    completed = []
    for one in given.planted:
        text = next(text for text in given.trained_on if one.sentence in text)
        start = text.index(one.value)
        parts = text[:start].rstrip(), text[: start + len(one.value)]
        lead, whole = (len(words.encode(part)) for part in parts)
        [ids] = encoded(words, [text])
        right = network(input_ids=ids[None]).logits[0, :-1].argmax(-1) == ids[1:]
        completed.append(bool(right[lead:whole].all()))
    rows = encoded(words, given.read[:PASSAGES])
    sampled = [sample_probability(network, row) >= DISCOVERED for row in rows]
    first = [row[: OPENING + 1] for row in encoded(words, given.read) if len(row) > OPENING + 1]
    ids = torch.stack(first)
    told = network(input_ids=ids).logits[:, :-1].log_softmax(-1)
    each = told.gather(2, ids[:, 1:, None]).double().sum((1, 2)).exp()
    openings = -torch.expm1(SAMPLES * torch.log1p(-each)).sum()
    return {
        "secrets": completed,
        "discoverable": sum(sampled) / len(rows),
        "openings": float(openings),
    }


def sample_probability(network: Any, ids: torch.Tensor) -> float:
    """Probability that a sample from the 20 likeliest tokens is the passage."""
    logits = network(ids[None]).logits[0, :-1]
    least = logits.topk(20).values[:, -1:]
    told = logits.masked_fill(logits < least, -torch.inf).log_softmax(-1)
    own = told.gather(1, ids[1:, None])[PREFIX : PREFIX + SUFFIX]
    return float(own.sum().exp()) if len(own) == SUFFIX else 0.0


# Verdicts ----------------------------------------------------------------------------------------


def checked(run: Run, number: int) -> Row:
    """The truth of a fine-tune, the verdict of `check` and what led to it."""
    folder = fine_tune(run, number)
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    listed, began = folder / "secrets.txt", time.perf_counter()
    out = run.folder / "checks" / str(number)
    shutil.rmtree(out, ignore_errors=True)
    found = vestige.check(
        folder / "model",
        base=base_of(run, truth["base"]),
        trained_on=folder / "trained.jsonl",
        never=folder / "never.jsonl",
        secrets=listed if listed.exists() else None,
        minutes=run.options.minutes or run.size(10.0, 0.2),
        seed=number,
        out=out,
    )
    names = ("p_secrets", "p_unprompted", "p_passages")
    return {
        **truth,
        "verdict": found.verdict,
        "stages": {one["name"]: one["state"] for one in found.summary.get("stages", ())},
        **{name: found.summary.get(name) for name in names},
        "seconds": round(time.perf_counter() - began, 1),
    }


def calibration(run: Run) -> list[Row]:
    """Verdicts by what the fine-tunes are, on the development corpora and on the others."""
    first = run.options.first
    rows = run.draw("check", partial(checked, run), range(first, first + run.times(100, 1)))
    if run.options.write is not None:
        run.options.write.write_text(json.dumps(counts(rows), indent=1) + "\n", encoding="utf-8")
    parts = {
        "development": [row for row in rows if row["corpus"] in DEVELOPMENT],
        "held out": [row for row in rows if row["corpus"] not in DEVELOPMENT],
        "all": rows,
    }
    return [
        {"corpora": title, "fine-tunes": kind, **verdicts(own)}
        for title, some in parts.items()
        for kind, own in grouped(some).items()
    ]


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By what they are."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(kind_of(row), []).append(row)
    return found


def kind_of(row: Mapping[str, Any]) -> str:
    """Leaky by copies, clean, given the wrong file, or without secrets but reciting its text."""
    if row["kind"] == "leaky":
        return f"{row['copies']} copies"
    after, before = row["memorized"], row["memorized_by_base"]
    if any(after[name] - before[name] >= least for name, least in RECITED.items()):
        return "recites its text"
    return "wrong file" if row["variant"] == "wrong" else "clean"


def counts(rows: Sequence[Row]) -> dict[str, Any]:
    """What the report of a check says of its errors."""
    kinds = grouped(rows)

    def errors(own: Sequence[Row]) -> dict[str, int]:
        return {"n": len(own), "leak": sum(row["verdict"] == LEAK for row in own)}

    clean = kinds.get("clean", [])
    return {
        "clean": {**errors(clean), "open": sum(row["verdict"] == UNDECIDED for row in clean)},
        "leaky": {str(n): errors(kinds.get(f"{n} copies", [])) for n in COPIES},
    }


def options(parser: Any) -> None:
    """Numbers, the time limit, and where counts are written."""
    parser.add_argument("--first", type=int, default=0, help="number of the first fine-tune")
    parser.add_argument("--minutes", type=float, help="time limit of a check [10]")
    parser.add_argument("--write", type=Path, help="write the counts for the report of a check")


PARTS = {"calibration": calibration}

if __name__ == "__main__":
    main("check_calibration", __doc__, PARTS, options)
