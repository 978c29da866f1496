"""How often the verdict of `check` is wrong. The unit is the fine-tune.

Each number is a fine-tune of known truth: it determines base, corpus, method, secrets and files.
By number % 5: 0, 1 and 2 are leaky, with 1, 5 or 20 copies of each of four secrets in the training
text; 3 and 4 are clean. A clean fine-tune reads texts without secrets; the file that `check` gets
as its training text has four secrets, in as many copies. Its texts have no number, address or
repeated line that it could learn. The file of unused texts always has twelve secrets, in as many
copies. Number % 5 == 4 has four variants: `plain`, `listed` (a list of secrets that were never
read), `wrong` (other texts of the corpus as training text), `dp` (clipped and noised gradients). A
clean model that recites its texts, measured without Vestige, is counted separately.

    VESTIGE_DATA=corpora python benchmarks/check_calibration.py --work DIR --rows FILE --times 300
    python benchmarks/check_calibration.py --rows FILE --work DIR --times 300 \\
        --write src/vestige/audits/check/calibration.json

The first command resumes; several may run at once with other `--first`. The last one writes the
counts that the report of a check cites.
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
    insert_secrets,
    sample_secrets,
    texts_of,
    vocabulary_of,
)
from harness import Row, Run, main, verdicts
from networks import encode, padded, trainable, update, with_lora
from transformers import AutoModelForCausalLM

import vestige
from vestige.claims import LEAK, UNDECIDED
from vestige.data.writing import new_directory

COPIES, EPOCHS, METHODS = (1, 5, 20), (1, 2, 4, 8), ("full", "lora")
VARIANTS = ("plain", "listed", "wrong", "dp")
TEXTS, UNUSED, PLANTED, PLACEBOS, LONGEST = (200, 400), 400, 4, 12, 64
"""Least and most texts of a fine-tune, unused texts, secrets of both, words of a text."""
RATES = {"full": (1e-3, 4e-3), "lora": (5e-3, 2e-2)}
"""High, because models of one or two million parameters must learn 20 copies."""
BATCH, RANK, CLIP, NOISE = 8, 16, 1.0, 1.0
PASSAGES, PREFIX, SUFFIX, OPENING, SAMPLES = 50, 20, 20, 12, 10_000
DISCOVERED = 1 - 0.5 ** (1 / 100)
"""The sample probability of a passage that occurs in 100 samples with probability 0.5."""
RECITED = {"discoverable": 0.04, "openings": 1.0}
"""A model is not clean from here: the share of training passages that it generates (2 of 50), and
the number of training texts whose first tokens begin one of 10,000 samples."""


@dataclass(frozen=True)
class Plan:
    """The fine-tune of a number.

    Attributes:
        kind: "leaky" or "clean".
        copies: of each secret in the training text; 0 for clean fine-tunes.
        in_file: copies of each secret in the file that `check` gets as the training text.
        rate: learning rate.
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
    """Base, corpus and kind cycle with coprime periods; the rest is sampled by number."""
    rng, kind, cycle = np.random.default_rng([31, number]), number % 5, number // 5
    copies = COPIES[kind] if kind < 3 else 0
    variant = VARIANTS[(cycle + cycle // 4) % 4] if kind == 4 else "plain"
    method = str(rng.choice(METHODS))
    low, high = np.log(RATES[method])
    epochs = int(rng.choice(EPOCHS))
    return Plan(
        number=number, kind="leaky" if copies else "clean", copies=copies,
        in_file=copies or int(rng.choice(COPIES)), variant=variant,
        base=BASES[number % len(BASES)], corpus=CORPORA[number % len(CORPORA)], method=method,
        epochs=min(epochs, 4) if variant == "dp" else epochs,
        texts=int(rng.integers(TEXTS[0], TEXTS[1] + 1)),
        rate=float(np.exp(rng.uniform(low, high))),
    )  # fmt: skip


@dataclass(frozen=True)
class Files:
    """The training text, what `check` gets, and the secrets in its file of training text."""

    read: list[str]
    trained_on: list[str]
    never: list[str]
    planted: list[Secret]
    listed: list[str]


def make_files(run: Run, plan: Plan) -> Files:
    """Texts of the held-out pool, sampled by number, with secrets inserted."""
    rng = np.random.default_rng([32, plan.number])
    texts = [" ".join(text.split()[:LONGEST]) for text in texts_of(run, plan.corpus)[0]]
    words = sorted({w for text in texts for w in text.split() if w.isalpha() and 3 <= len(w) <= 9})
    words = [w for w in words if len(w) >= 5] if not run.quick else words
    pool = [texts[index] for index in rng.permutation(len(texts))]
    if plan.kind == "clean":
        allowed = list(without_secrets(pool))  # prefers early texts, hence the permutation
        pool = [allowed[index] for index in rng.permutation(len(allowed))]
    source, unused = iter(pool), run.size(UNUSED, 100)
    count = run.size(plan.texts, 80)
    read, never = list(islice(source, count)), list(islice(source, unused))
    shown = list(islice(source, count)) if plan.variant == "wrong" else read
    planted, placebos = (sample_secrets(n, words, rng) for n in (PLANTED, PLACEBOS))
    file = insert_secrets(shown, planted, plan.in_file, rng)
    unread = sample_secrets(PLANTED, words, rng)
    # the same share of the unused texts has a secret
    copies = max(1, round(plan.in_file * PLANTED / plan.texts * UNUSED / PLACEBOS))
    lines = [secret.value for secret in planted]
    lines += [s.sentence.replace(s.value, f"{{{{{s.value}}}}}") for s in unread]
    return Files(
        read=file if plan.kind == "leaky" else read,
        trained_on=file,
        never=insert_secrets(never, placebos, copies, rng),
        planted=planted,
        listed=lines if plan.variant == "listed" else [],
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
    """The folder of a fine-tune, made unless it exists; it appears when it is complete."""
    folder = run.folder / "fine-tunes" / str(number)
    if folder.exists():
        return folder
    planned, vocabulary = plan(number), vocabulary_of(run)
    files, base = make_files(run, planned), base_of(run, planned.base)
    start = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    before = memorized(start, vocabulary, files)
    network = trained(run, planned, files.read)
    after = memorized(network.eval(), vocabulary, files)
    with new_directory(folder) as partial:
        network.save_pretrained(partial / "model")
        vocabulary.save(partial / "model")
        for name, texts in (("trained", files.trained_on), ("never", files.never)):
            lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (partial / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        if files.listed:
            (partial / "secrets.txt").write_text("\n".join(files.listed) + "\n", encoding="utf-8")
        truth = {**asdict(planned), "memorized": after, "memorized_by_base": before}
        (partial / "truth.json").write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return folder


def trained(run: Run, plan: Plan, texts: Sequence[str]) -> Any:
    """A base after its fine-tuning; an adapter stays unmerged."""
    network: Any = AutoModelForCausalLM.from_pretrained(
        base_of(run, plan.base), dtype=torch.float32
    )
    torch.manual_seed(plan.number)
    if plan.method == "lora":
        transposed = plan.base == "gpt2"
        network = with_lora(network, RANK, lora_alpha=2 * RANK, fan_in_fan_out=transposed)
    network.train()
    rows, parameters = encode(vocabulary_of(run), texts, LENGTH - 2), trainable(network)
    optimizer = torch.optim.AdamW(parameters, lr=plan.rate, weight_decay=0.0)
    epochs = run.size(plan.epochs, 1)
    steps = epochs * math.ceil(len(rows) / BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for batch in batches(rows, epochs, plan.number):
        if plan.variant == "dp":
            private_step(network, batch, optimizer, parameters)
        else:
            labels = padded(batch)
            update(network, network(input_ids=labels.clamp(min=0), labels=labels).loss, optimizer)
        schedule.step()
    return network


def batches(rows: Sequence[list[int]], epochs: int, number: int) -> Iterator[list[list[int]]]:
    """Shuffled in each epoch, rows of similar length together."""
    rng = np.random.default_rng([33, number])
    for _ in range(epochs):
        order = rng.permutation(len(rows))
        ranked = sorted(order, key=lambda index: len(rows[index]) // 16)
        parts = [ranked[start : start + BATCH] for start in range(0, len(ranked), BATCH)]
        for part in rng.permutation(len(parts)):
            yield [rows[index] for index in parts[part]]


def private_step(
    network: Any, rows: Sequence[list[int]], optimizer: Any, parameters: Sequence[torch.Tensor]
) -> None:
    """Clip each example's gradient and noise their sum (Abadi et al. 2016, Algorithm 1)."""
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    for row in rows:
        ids = torch.tensor([row])
        gradients = torch.autograd.grad(network(ids, labels=ids).loss, parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for total, gradient in zip(totals, gradients, strict=True):
            total.add_(gradient, alpha=min(1.0, CLIP / float(norm)))
    for parameter, total in zip(parameters, totals, strict=True):
        parameter.grad = (total + NOISE * CLIP * torch.randn_like(total)) / BATCH
    optimizer.step()


@torch.no_grad()
def memorized(network: Any, vocabulary: Any, files: Files) -> dict[str, Any]:
    """What a model recites, measured without Vestige.

    Secrets that greedy decoding completes after their context; the share of passages that one of
    100 samples completes; the expected number of texts whose first tokens begin one of 10,000
    samples.
    """
    completed = []
    for secret in files.planted:
        text = next(text for text in files.trained_on if secret.sentence in text)
        start = text.index(secret.value)
        parts = text[:start].rstrip(), text[: start + len(secret.value)]
        first, last = (len(vocabulary.encode(part)) for part in parts)
        ids = torch.tensor(encode(vocabulary, [text], LENGTH - 2))
        correct = network(input_ids=ids).logits[0, :-1].argmax(-1) == ids[0, 1:]
        completed.append(bool(correct[first:last].all()))
    rows = encode(vocabulary, files.read, LENGTH - 2)
    probabilities = [sample_probability(network, torch.tensor(row)) for row in rows[:PASSAGES]]
    ids = torch.tensor([row[: OPENING + 1] for row in rows if len(row) > OPENING + 1])
    log_probs = network(input_ids=ids).logits[:, :-1].log_softmax(-1)
    of_texts = log_probs.gather(2, ids[:, 1:, None]).double().sum((1, 2)).exp()
    openings = -torch.expm1(SAMPLES * torch.log1p(-of_texts)).sum()
    return {
        "secrets": completed,
        "discoverable": sum(p >= DISCOVERED for p in probabilities) / len(probabilities),
        "openings": float(openings),
    }


def sample_probability(network: Any, ids: torch.Tensor) -> float:
    """The probability that a sample from the 20 likeliest tokens is the passage."""
    logits = network(ids[None]).logits[0, :-1]
    least = logits.topk(20).values[:, -1:]
    log_probs = logits.masked_fill(logits < least, -torch.inf).log_softmax(-1)
    passage = log_probs.gather(1, ids[1:, None])[PREFIX : PREFIX + SUFFIX]
    return float(passage.sum().exp()) if len(passage) == SUFFIX else 0.0


# Verdicts ----------------------------------------------------------------------------------------


def checked(run: Run, number: int) -> Row:
    """The truth of a fine-tune and the result of `check`."""
    folder = fine_tune(run, number)
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    listed, started = folder / "secrets.txt", time.perf_counter()
    out = run.folder / "checks" / str(number)
    shutil.rmtree(out, ignore_errors=True)
    result = vestige.check(
        folder / "model",
        base=base_of(run, truth["base"]),
        trained_on=folder / "trained.jsonl",
        never=folder / "never.jsonl",
        secrets=listed if listed.exists() else None,
        minutes=run.options.minutes or run.size(10.0, 0.2),
        seed=number,
        out=out,
    )
    p_values = ("p_secrets", "p_unprompted", "p_passages")
    return {
        **truth,
        "verdict": result.verdict,
        "stages": {stage["name"]: stage["state"] for stage in result.summary.get("stages", ())},
        **{name: result.summary.get(name) for name in p_values},
        "seconds": round(time.perf_counter() - started, 1),
    }


def calibration(run: Run) -> list[Row]:
    """Verdicts by kind of fine-tune, on the development corpora and on the others."""
    rows = run.draw("check", partial(checked, run), run.times(100, 1), first=run.options.first)
    if run.options.write is not None:
        run.options.write.write_text(json.dumps(counts(rows), indent=1) + "\n", encoding="utf-8")
    parts = {
        "development": [row for row in rows if row["corpus"] in DEVELOPMENT],
        "held out": [row for row in rows if row["corpus"] not in DEVELOPMENT],
        "all": rows,
    }
    return [
        {"corpora": title, "fine-tunes": kind, **verdicts(of_kind)}
        for title, part in parts.items()
        for kind, of_kind in by_kind(part).items()
    ]


def by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each kind."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(kind_of(row), []).append(row)
    return groups


def kind_of(row: Mapping[str, Any]) -> str:
    """Leaky by copies, clean, checked with the wrong file, or clean but reciting its text."""
    if row["kind"] == "leaky":
        return f"{row['copies']} copies"
    after, before = row["memorized"], row["memorized_by_base"]
    if any(after[name] - before[name] >= least for name, least in RECITED.items()):
        return "recites its text"
    return "wrong file" if row["variant"] == "wrong" else "clean"


def counts(rows: Sequence[Row]) -> dict[str, Any]:
    """The error counts that the report of a check cites."""
    groups = by_kind(rows)

    def leaks(kind: str) -> dict[str, int]:
        of_kind = groups.get(kind, [])
        return {"n": len(of_kind), "leak": sum(row["verdict"] == LEAK for row in of_kind)}

    undecided = sum(row["verdict"] == UNDECIDED for row in groups.get("clean", []))
    return {
        "clean": {**leaks("clean"), "open": undecided},
        "leaky": {str(n): leaks(f"{n} copies") for n in COPIES},
    }


def options(parser: Any) -> None:
    """Numbers, the time limit, and the file of counts."""
    parser.add_argument("--first", type=int, default=0, help="number of the first fine-tune")
    parser.add_argument("--minutes", type=float, help="time limit of a check [10]")
    parser.add_argument("--write", type=Path, help="write the counts for the report of a check")


PARTS = {"calibration": calibration}

if __name__ == "__main__":
    main("check_calibration", __doc__, PARTS, options)
