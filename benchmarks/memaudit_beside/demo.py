"""memaudit's own demo, and Vestige asked about the same trained model, canaries and controls."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vestige as vg
from memaudit_beside.demo_model import DemoModel
from memaudit_beside.peer import quiet
from memaudit_beside.records import claims, record
from reproduction.updates.reconstruction import ngrams
from vestige.data.corpus import Corpus

REFERENCES = 400
"""Of each secret; 16 secrets need 320 at an error of 5 % for all of them."""
UNUSED = 400
"""Texts for `check` that the demo did not train on; its own 100 controls are too few."""
GIVEN = 12
"""Words of a secret that `extract` is given, of 25: as memaudit's longer prefix."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Demo:
    """What memaudit's demo left.

    Attributes:
        report: as memaudit writes it.
        model: trained.
        base: before its training.
        planted: secrets that were, as memaudit's manifest has them.
        controls: secrets that were not.
        texts: of the training.
        seconds: of the whole demo.
    """

    report: Mapping[str, Any]
    model: DemoModel
    base: DemoModel
    planted: Sequence[str]
    controls: Sequence[str]
    texts: Sequence[str]
    seconds: float

    @classmethod
    def run(cls, seed: int) -> "Demo":
        """Run it, as `memaudit demo` does, and keep the model that it audits."""
        from memaudit import demo

        held: dict[str, Any] = {}
        audit = demo.run_audit

        def kept(**given: Any) -> Any:
            held.update(given)
            return audit(**given)

        began = time.perf_counter()
        demo.run_audit = kept
        try:
            with quiet(), tempfile.TemporaryDirectory() as out:
                report = demo.run_demo(out, seed=seed)
        finally:
            demo.run_audit = audit
        seconds = time.perf_counter() - began
        model, base = (DemoModel(held[name], held["tokenizer"]).eval() for name in ("model", "ref"))
        canaries = held["manifest"]["canaries"]
        sides = ([c["secret"] for c in canaries if c["included"] is said] for said in (True, False))
        texts = [row["text"] for row in held["dataset"]]
        return cls(report, model, base, *sides, texts, seconds)


def rows(seed: int, *, search: bool = True) -> list[Row]:
    """A row a question: what memaudit says, then what Vestige says of the same model."""
    made = Demo.run(seed)
    found = _of_memaudit(made, seed)
    planted, controls = list(made.planted), list(made.controls)
    asked: dict[str, Callable[[], Row]] = {
        "exposure, planted": lambda: _exposure(made, planted, seed),
        "exposure, controls": lambda: _exposure(made, controls[: len(planted)], seed),
        "complete, planted": lambda: _complete(made, planted),
        "complete, controls": lambda: _complete(made, controls),
        "membership of texts": lambda: _texts(made, planted, controls, seed),
        "membership of texts, controls": lambda: _texts(made, controls[:16], controls[16:], seed),
    }
    if search:
        asked["diff"] = lambda: _diff(made, seed)
        asked["check"] = lambda: _check(made, seed, listed=False)
        asked["check, listed"] = lambda: _check(made, seed, listed=True)
    for question, ask in asked.items():
        began = time.perf_counter()
        told = ask()
        seconds = round(time.perf_counter() - began, 1)
        found.append(
            {"tool": "vestige", "question": question, "seed": seed, **told, "seconds": seconds}
        )
    return found


def _of_memaudit(made: Demo, seed: int) -> list[Row]:
    report = made.report
    whole = {"tool": "memaudit", "seed": seed}
    told = claims(report)
    own = report["regurgitation"]
    return [
        {**whole, "question": "membership", **told, "seconds": report["audit_seconds"]},
        {
            **whole,
            "question": "regurgitation",
            "said": own["overall"]["n_regurgitated"],
            "word for word": own["detected"]["n_detected"],
            "of": own["overall"]["n"],
            "of controls": report["negative_controls"]["regurgitation_rate"],
        },
        {**whole, "question": "training and audit", "seconds": round(made.seconds, 1)},
    ]


def _exposure(made: Demo, secrets: Sequence[str], seed: int) -> Row:
    words = made.model.vocabulary.texts()[4:]  # memaudit draws from all but four special ones
    marked = [_any_word(secret, [word.strip() for word in words]) for secret in secrets]
    found = vg.exposure(made.model, marked, references=REFERENCES, seed=seed)
    told = found.summary
    return {name: told[name] for name in ("verdict", "found", "secrets", "least_probability")}


def _any_word(secret: str, words: Sequence[str]) -> str:
    """A record each word of whose secret could have been any."""
    marks = ("|".join([own, *(word for word in words if word != own)]) for own in secret.split())
    return record(" ".join(f"{{{{{mark}}}}}" for mark in marks))


def _complete(made: Demo, secrets: Sequence[str]) -> Row:
    parted = [(one.split()[:GIVEN], one.split()[GIVEN:]) for one in secrets]
    marked = [f"{' '.join(given)} {{{{{' '.join(rest)}}}}}" for given, rest in parted]
    found = vg.extract(made.model, [record(one) for one in marked], beam=1)
    return {
        "verdict": found.verdict,
        "word for word": found.summary["greedy_completed"],
        "of": len(secrets),
        "p": found.summary["p"],
    }


def _texts(made: Demo, texts: Sequence[str], reference: Sequence[str], seed: int) -> Row:
    sides = [Corpus.from_texts([record(one) for one in side]) for side in (texts, reference)]
    found = vg.membership(
        made.model, texts=sides[0], reference=sides[1], base=made.base, score="log-ratio", seed=seed
    )
    names = ("verdict", "named", "texts", "p_value", "at_least")
    return {name: found.summary[name] for name in names}


def _diff(made: Demo, seed: int) -> Row:
    """The search, which sees neither training text nor canaries, against what was planted."""
    found = vg.diff(made.base, made.model, seed=seed)
    read = {gram for row in found.rows() for gram in ngrams(tuple(row["tokens"]), 4)}
    grams = [
        [set(ngrams(tuple(made.model.vocabulary.encode(one)), 4)) for one in side]
        for side in (made.planted, made.controls)
    ]
    planted, controls = ([len(own & read) / len(own) for own in side] for side in grams)
    return {
        "verdict": found.summary()["verdict"],
        "phrases": len(list(found.rows())),
        "share of planted 4-grams": round(sum(planted) / len(planted), 3),
        "planted seen by half": sum(share >= 0.5 for share in planted),
        "share of control 4-grams": round(sum(controls) / len(controls), 3),
    }


def _check(made: Demo, seed: int, *, listed: bool) -> Row:
    """The release check, with the canaries as a list of secrets or with the two files alone."""
    from memaudit import generate_canaries

    tokenizer, length = made.model.vocabulary.tokenizer, len(made.planted[0].split())
    drawn = generate_canaries(
        tokenizer, n=1, n_controls=UNUSED, family="random", seed=seed + 1000, secret_len=length
    )
    found = vg.check(
        made.model,
        base=made.base,
        trained_on=made.texts,
        never=[record(one.secret) for one in drawn if one.role == "control"],
        secrets=[record(f"{{{{{one}}}}}") for one in made.planted] if listed else None,
        seed=seed,
    )
    stages = {one["name"]: one["state"] for one in found.summary["stages"]}
    names = ("verdict", "p_secrets", "p_unprompted", "p_passages", "found_secrets")
    told = {"verdict": found.verdict, **found.summary}
    return {**{name: told.get(name) for name in names}, "stages": stages}
