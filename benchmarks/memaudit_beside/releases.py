"""`vestige check` and memaudit about finished fine-tunes, those of `check_calibration`.

memaudit audits canaries that were planted before the training, and these fine-tunes have none of
its own. Each is therefore asked in two ways, by the command `memaudit audit` with the base, the
training text and the unused text:

- "secrets as canaries": the sentences of the secrets, which are given away, are put down as planted
  canaries, and 100 invented sentences of the same formats as its controls;
- "own canaries": the same fine-tuning once more, with memaudit's canaries in its text.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from check_calibration.fine_tunes import files, plan, trained
from check_calibration.planted import secrets
from check_calibration.world import DEVELOPMENT, base, pool, tokenizer

from memaudit_beside.peer import quiet
from memaudit_beside.records import claims

CONTROLS, REAL = 100, 64
"""memaudit's controls, fewer of which it refuses, and texts that it compares by default."""
CLASSES = {
    "20 copies": 2,
    "5 copies": 2,
    "1 copy": 2,
    "clean": 2,
    "clean, wrong": 1,
    "clean, dp": 1,
}
"""Fine-tunes of each class; of several, those with the lowest numbers are taken."""
Row = dict[str, Any]


def rows(world: Path) -> Iterator[Row]:
    """Rows of both tools about each chosen fine-tune; `check` was asked by the calibration."""
    known = chosen(world)
    about = {one["number"]: {"number": one["number"], "class": class_of(one)} for one in known}
    for one in known:
        yield about[one["number"]] | of_check(one)
    for question, ask in (("secrets as canaries", given_away), ("own canaries", planted)):
        for number, own in about.items():
            yield own | {"tool": "memaudit", "question": question} | ask(world, number)


def chosen(world: Path) -> list[Row]:
    """Lowest numbers of each class among the calibration's rows of irc and newsgroups corpora."""
    lines = (world / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    held_out = [row for row in map(json.loads, lines) if row["corpus"] not in DEVELOPMENT]
    found = sorted(held_out, key=lambda row: row["number"])
    return [
        row
        for name, count in CLASSES.items()
        for row in [one for one in found if class_of(one) == name][:count]
    ]


def class_of(row: Mapping[str, Any]) -> str:
    """Its copies of each secret, or how it is clean."""
    if row["kind"] == "leaky":
        return f"{row['copies']} {'copy' if row['copies'] == 1 else 'copies'}"
    return "clean" if row["variant"] == "plain" else f"clean, {row['variant']}"


def of_check(known: Mapping[str, Any]) -> Row:
    """What the calibration's row says: the verdict and each stage's p-value."""
    names = ("verdict", "p_secrets", "p_unprompted", "p_passages")
    stages = {name: one["state"] for name, one in known["stages"].items()}
    return {
        "tool": "vestige",
        "question": "check",
        **{name: known.get(name) for name in names},
        "stages": stages,
        "seconds": known["seconds_check"],
        "cpu_seconds": known["cpu_seconds_check"],
    }


def given_away(world: Path, number: int) -> Row:
    """The fine-tune as it is; the true secrets are named to memaudit."""
    from memaudit import inject
    from memaudit.types import Canary

    made = plan(number)
    words, own = tokenizer(world), files(world, made).planted
    rare = sorted({w for text in pool(world, made.corpus) for w in text.split() if w.isalpha()})
    controls = secrets(CONTROLS, rare, np.random.default_rng([36, number]))
    canaries = [
        Canary(
            id=f"{role}-{place}", family="structured", secret=one.sentence,
            secret_token_ids=words.encode(one.sentence), prefix="", prefix_token_ids=[],
            secret_span=[0, 0], repetitions=made.in_file, role=role,
        )
        for role, group in (("candidate", own), ("control", controls))
        for place, one in enumerate(group)
    ]  # fmt: skip
    asked = [asdict(one) for one in canaries]
    _, manifest = inject([{"text": ""}], asked, seed=number, include_prob=1.0)
    folder = world / "fine-tunes" / str(number)
    return audit(folder / "model", base(world, made.base), manifest, folder)


def planted(world: Path, number: int) -> Row:
    """The recipe of the fine-tune, with memaudit's canaries in the text as its page has it."""
    from memaudit import generate_canaries, inject
    from transformers import AutoModelForCausalLM

    made, words = plan(number), tokenizer(world)
    start = AutoModelForCausalLM.from_pretrained(base(world, made.base)).eval()
    began, spent = time.perf_counter(), time.process_time()
    drawn = generate_canaries(words, profile="routine", family="high_ppl", model=start, seed=number)
    texts = [{"text": text} for text in files(world, made).read]
    mixed, manifest = inject(texts, drawn, seed=number, tokenizer=words)
    model = trained(world, made, [row["text"] for row in mixed])
    took = {
        "training_seconds": round(time.perf_counter() - began, 1),
        "cpu_training_seconds": round(time.process_time() - spent, 1),
    }
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        words.save_pretrained(place)
        folder = world / "fine-tunes" / str(number)
        told = audit(Path(place), base(world, made.base), manifest, folder, sample=0)
    return {**told, **took, "generator": drawn[0].actual_generator}


def audit(
    model: Path, start: Path, manifest: Mapping[str, Any], texts: Path, *, sample: int = REAL
) -> Row:
    """`memaudit audit` of a model folder, timed with its loading.

    It compares so many texts of each file whole, and fails on one that is longer than the model
    reads.
    """
    from memaudit.cli import main

    adapter = (model / "adapter_config.json").exists()
    with tempfile.TemporaryDirectory() as place:
        canaries, out = Path(place, "manifest.json"), Path(place, "report.json")
        canaries.write_text(json.dumps(manifest), encoding="utf-8")
        given = [
            "--model", model, "--canary-set", canaries, "--dataset", texts / "trained.jsonl",
            "--held-out", texts / "never.jsonl", "--ref", "auto" if adapter else start,
            "--output", out, "--real-sample", sample,
        ]  # fmt: skip
        began, spent = time.perf_counter(), time.process_time()
        with quiet():
            state = main(["audit", *map(str, given)])
        took = {
            "seconds": round(time.perf_counter() - began, 1),
            "cpu_seconds": round(time.process_time() - spent, 1),
        }
        if state:
            return {"refused": True, **took}
        report = json.loads(out.read_text(encoding="utf-8"))
    return {**claims(report), **_said(report), **took}


def _said(report: Mapping[str, Any]) -> Row:
    """Canaries by copies, completions, and the comparison of the two files."""
    copies, compared = report["membership"]["by_repetition"], report["real_records"]
    return {
        "by copies": {
            name: [one["detected"], one["n"]] for name, one in copies.items() if name.isdigit()
        },
        "said": report["regurgitation"]["overall"]["n_regurgitated"],
        "texts p": compared["set_level"]["p_value"] if compared else None,
        "mode": report["reference"]["mode"],
        "warnings": report["audit_warnings"],
    }
