"""Stage 3: can passages of the training text be extracted, and is the training text recognized?

`vestige.extract` samples passages of the training text and of the reference half, from the model
and from its base; `vestige.membership` tests whether the training text is recognized at all. If it
is not, the file is the wrong one or left no trace.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import vestige
from vestige.audits.check.stage import CONTROL_LEVEL, Stage
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.protocols import LanguageModel
from vestige.results import Result

PREFIX, SUFFIX = 20, 20
"""Tokens before a passage, and of a passage."""

LEAST_TEXTS = 20
"""In each list; with fewer, nothing can be compared."""


@dataclass(frozen=True, kw_only=True)
class PassageTests:
    """Runs the two verbs on lists of texts; all of them share the cached token statistics."""

    model: LanguageModel
    base: LanguageModel
    folder: Path
    seed: int

    def extract(self, model: LanguageModel, texts: Sequence[str], rest: Sequence[str]) -> Result:
        """Passages of texts and of the reference."""
        return vestige.extract(
            model, Corpus.from_texts(texts), reference=Corpus.from_texts(rest), as_="texts",
            prefix=PREFIX, suffix=SUFFIX, continued=0, seed=self.seed, statistics=self.folder,
        )  # fmt: skip

    def membership(self, texts: Sequence[str], rest: Sequence[str]) -> Result:
        """Whether the texts were used."""
        return vestige.membership(
            self.model, texts=Corpus.from_texts(texts), reference=Corpus.from_texts(rest),
            base=self.base, seed=self.seed, statistics=self.folder,
        )  # fmt: skip


Run = Callable[[str, Callable[[], Result]], Mapping[str, Any]]
"""(key, work) -> the summary of a verb, from the store if it is there."""


def passages_stage(
    tests: PassageTests,
    trained: Sequence[str],
    reference: Sequence[str],
    control: Sequence[str],
    run: Run,
    *,
    sure: bool,
    membership: bool,
) -> Stage:
    """Extract passages of the training text, the reference and the control half."""
    if min(len(trained), len(reference)) < LEAST_TEXTS:
        few = f"{len(trained)} training texts, and {len(reference)} texts in each half of --never"
        sentence = f"{few}; at least {LEAST_TEXTS} are needed."
        return Stage(name="passages", state="open", sentence=sentence)
    try:
        own = run("extract", lambda: tests.extract(tests.model, trained, reference))
        base = run("extract base", lambda: tests.extract(tests.base, trained, reference))
    except DataError as error:
        return Stage(name="passages", state="open", sentence=f"{error.problem}.")
    used = run("membership", lambda: tests.membership(trained, reference))
    stage = Stage(
        name="passages", state="open", sentence="", p=own["p_value"], least=_least(own),
        estimate=_estimate(own), facts=_facts(own, base, used), rows=_rows(own, base, used),
        **_negative(tests, reference, control, run),
    )  # fmt: skip
    if membership and used["p_value"] <= stage.level:
        sentence = f"{used['named']} of {used['texts']} training texts are recognized"
        sentence += f"; p = {used['p_value']:.2g} compared with --never."
        return replace(stage, state="leak", p=used["p_value"], sentence=sentence)
    return _decided(stage, own, base, used, sure=sure)


def _negative(
    tests: PassageTests, reference: Sequence[str], control: Sequence[str], run: Run
) -> dict[str, Any]:
    """The control half against the reference half."""
    if len(control) < LEAST_TEXTS:
        few = f"The control half of --never has {len(control)} texts"
        return {"negative": f"{few}; {LEAST_TEXTS} are needed."}
    try:
        extracted = run("extract control", lambda: tests.extract(tests.model, control, reference))
        used = run("membership control", lambda: tests.membership(control, reference))
    except DataError as error:
        return {"negative": f"{error.problem}."}
    p, recognized = extracted["p_value"], used["p_value"]
    if p is None:
        return {"negative": "No text of the control half of --never is long enough for a passage."}
    sentence = f"Half of --never: {_percent(extracted['sampled'])} of passages extracted"
    sentence += f" (p = {p:.2g}), {used['named']} of {used['texts']} texts recognized"
    return {
        "negative": f"{sentence} (p = {recognized:.2g}).",
        "passed": min(p, recognized) > CONTROL_LEVEL / 2,
    }


def _decided(
    stage: Stage,
    own: Mapping[str, Any],
    base: Mapping[str, Any],
    used: Mapping[str, Any],
    *,
    sure: bool,
) -> Stage:
    """The stage with its state and sentence."""
    if stage.p is None or own["sampled"] is None:
        return replace(stage, sentence="No text is long enough for a passage.")
    rates = [_percent(one) for one in (own["sampled"], own["reference_sampled"], base["sampled"])]
    others = f"--never: {rates[1]}, base: {rates[2]}"
    sentence = f"{rates[0]} of training passages extracted ({others})"
    if stage.p <= stage.level:
        before = base["p_value"] is not None and base["p_value"] <= 0.05
        if before or own["sampled"] <= (base["sampled"] or 0.0):
            return replace(stage, sentence=f"{sentence}. The base extracts them, too.")
        return replace(stage, state="leak", sentence=f"{sentence}; p = {stage.p:.2g}.")
    if stage.least > stage.level:
        return replace(stage, sentence=f"{sentence}. Too few texts to decide.")
    if differing := failed(own, "comparable"):
        return replace(stage, sentence=differing)
    if used["p_value"] > 0.05 and not sure:
        unknown = f"The model does not recognize the training text (p = {used['p_value']:.2g})"
        remedy = "--trained-on is the wrong file, or training left no trace"
        return replace(stage, sentence=f"{unknown}: {remedy}.", needs="--sure")
    return replace(stage, state="clear", sentence=f"{sentence}.")


def failed(summary: Mapping[str, Any], name: str) -> str:
    """The sentence of a failed check of a verb's claim; "" if it did not fail."""
    checks = summary["claim"]["checks"]
    failed_ = (one["sentence"] for one in checks if (one["name"], one["state"]) == (name, "failed"))
    return next(failed_, "")


def _least(own: Mapping[str, Any]) -> float:
    test = own["claim"]["test"]
    return 1.0 if test is None else float(test["least"])


def _estimate(own: Mapping[str, Any]) -> Sequence[Any] | None:
    found = own["claim"]["estimate"]
    return found and [found[one] for one in ("name", "value", "low", "high", "unit")]


def _facts(
    own: Mapping[str, Any], base: Mapping[str, Any], used: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "extracted": own["sampled"],
        "extracted_reference": own["reference_sampled"],
        "extracted_base": base["sampled"],
        "membership_p": used["p_value"],
        "texts_recognized": used["named"],
        "texts_tested": used["texts"],
        "recognized": used["p_value"] <= 0.05,
    }


def _rows(
    own: Mapping[str, Any], base: Mapping[str, Any], used: Mapping[str, Any]
) -> list[dict[str, Any]]:
    passages = f"passages of {SUFFIX} tokens"
    return [
        {"stage": "passages", "measured": f"{passages}, one of 100 samples",
         "trained": own["sampled"], "never": own["reference_sampled"], "base": base["sampled"]},
        {"stage": "passages", "measured": f"{passages}, greedy decoding",
         "trained": own["greedy"], "never": own["reference_greedy"], "base": base["greedy"]},
        {"stage": "passages", "measured": "texts recognized as used",
         "trained": used["named"] / max(1, used["texts"]), "never": None, "base": None},
    ]  # fmt: skip


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"
