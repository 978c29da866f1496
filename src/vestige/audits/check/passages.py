"""Stage 3: can passages of the training text be extracted, and is the training text recognized?

`vestige.extract` samples passages of the training text and of the reference, from the model and
from its base. `vestige.membership` tests whether the model recognizes the training text. If not,
the file is the wrong one, or training left no trace.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import vestige
from vestige.audits.check.secrets import MOST_SECRETS
from vestige.audits.check.unprompted import squeeze
from vestige.audits.check.verdict import CONTROL_LEVEL, LEVELS, Stage, State
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.protocols import LanguageModel
from vestige.monitor import Step
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.audits.check.work import Work

PREFIX, SUFFIX = 20, 20  # tokens before a passage, and of a passage
LEAST_COMPARED = 20  # texts in each list; with fewer there is no comparison
MOST_TEXTS, LEAST_TEXTS = 400, 40  # of each list; the stage needs time for the least

READINGS = 6
"""Readings per text of a list: three lists, each read by the model and by its base."""

RECOGNIZED = 0.05
"""Level at which the model recognizes the training text, or the base generates its passages."""

Summary = Mapping[str, Any]


class _TimeLimit(Exception):
    """The time limit of the stage was reached."""


def passages_stage(work: "Work", step: Step) -> Stage:
    """Extract passages of the training text, the reference and the control texts."""
    most = _texts_in_time(work)
    texts = work.texts
    secrets = work.secrets["tested"][:MOST_SECRETS]
    placebos = [*work.selected["reference"], *work.selected["control"]]
    lists = ((texts.trained, secrets), (texts.reference, placebos), (texts.control, placebos))
    try:
        if most < LEAST_TEXTS:
            raise _TimeLimit
        return _compare(work, *(
            _thinned(_without(documents, [secret.value for secret in found]), most)
            for documents, found in lists
        ))  # fmt: skip
    except _TimeLimit:
        return _open("The time limit was reached before enough was tested.", "--minutes")


def finds_passage(work: "Work", text: str) -> bool:
    """Whether the stage finds the invented text of the positive control."""
    tokens = len(work.model.vocabulary.encode(text))
    result = vestige.extract(
        work.model, Corpus.from_texts([text]), as_="texts", prefix=4, suffix=tokens - 4,
        seed=work.run.seed,
    )  # fmt: skip
    return bool(result.summary["greedy"])


def _texts_in_time(work: "Work") -> int:
    """Texts of each list that can be read in time; stored for a check that resumes."""
    if (stored := work.run.store.get("texts in time")) is not None:
        return int(stored)
    texts = work.texts.trained[:MOST_TEXTS]
    tokens = sum(map(len, work.model.vocabulary.encode_batch(list(texts))))
    seconds_per_text = work.seconds_per_token * tokens / max(1, len(texts))
    seconds = max(0.0, work.deadline("passages") - time.monotonic())
    most = int(min(MOST_TEXTS, seconds / max(1e-9, seconds_per_text * READINGS)))
    work.run.store["texts in time"] = most
    return most


def _without(texts: Sequence[str], values: Sequence[str]) -> Sequence[str]:
    """Texts without secrets, or all texts if too few are left.

    Secrets have their own stage; one that many texts repeat makes them differ from the reference.
    """
    squeezed = [*map(squeeze, values)]
    result = [text for text in texts if not any(value in squeeze(text) for value in squeezed)]
    return result if len(result) >= LEAST_TEXTS else texts


def _thinned(texts: Sequence[str], most: int) -> Sequence[str]:
    """At most `most` texts at equal distances."""
    step = max(1.0, len(texts) / most)
    return [texts[int(index * step)] for index in range(min(most, len(texts)))]


def _compare(
    work: "Work", trained: Sequence[str], reference: Sequence[str], control: Sequence[str]
) -> Stage:
    """Compare what is extracted and recognized of the training text and of the reference."""
    if min(len(trained), len(reference)) < LEAST_COMPARED:
        counts = f"{len(trained)} training texts, and {len(reference)} texts in each half of"
        return _open(f"{counts} --never; at least {LEAST_COMPARED} are needed.")
    reference_corpus = Corpus.from_texts(reference)

    def summary_of(key: str, verb: Callable[..., Result], *args: Any, **options: Any) -> Summary:
        if f"verb/{key}" not in work.run.store and time.monotonic() > work.deadline("passages"):
            raise _TimeLimit
        result: Summary = work.run_once(key, lambda _: verb(
            *args, reference=reference_corpus, seed=work.run.seed,
            statistics=work.folder / "statistics", **options,
        ))["summary"]  # fmt: skip
        return result

    def extract(key: str, texts: Sequence[str], model: LanguageModel) -> Summary:
        return summary_of(
            key, vestige.extract, model, Corpus.from_texts(texts), as_="texts", prefix=PREFIX,
            suffix=SUFFIX,
        )  # fmt: skip

    def membership(key: str, texts: Sequence[str]) -> Summary:
        return summary_of(
            key, vestige.membership, work.model, texts=Corpus.from_texts(texts), base=work.base
        )

    try:
        extracted = extract("extract", trained, work.model)
        base = extract("extract base", trained, work.base)
    except DataError as error:
        return _open(f"{error.problem}.")
    recognized = membership("membership", trained)
    passed = None
    negative = f"The control half of --never has {len(control)} texts; {LEAST_COMPARED} are needed."
    if len(control) >= LEAST_COMPARED:
        try:
            negative, passed = _negative_control(
                extract("extract control", control, work.model),
                membership("membership control", control),
            )
        except DataError as error:
            negative = f"{error.problem}."
    p, test = extracted["p_value"], extracted["claim"]["test"]
    estimate = extracted["claim"]["estimate"]
    least = 1.0 if test is None else float(test["least"])
    needs, (state, sentence) = "", _finding(extracted, base, p, least)
    if work.membership and recognized["p_value"] <= LEVELS["passages"]:
        state, p = "leak", recognized["p_value"]
        sentence = f"{recognized['named']} of {recognized['texts']} training texts are recognized; "
        sentence += f"p = {p:.2g} compared with --never."
    elif state == "clear" and recognized["p_value"] > RECOGNIZED and not work.sure:
        state, needs = "open", "--sure"
        sentence = "The model does not recognize the training text "
        sentence += f"(p = {recognized['p_value']:.2g}): "
        sentence += "--trained-on is the wrong file, or training left no trace."
    return Stage(
        name="passages", state=state, sentence=sentence, p=p, least=least, negative=negative,
        passed=passed, needs=needs, rows=_rows(extracted, base, recognized),
        estimate=estimate and [estimate[key] for key in ("name", "value", "low", "high", "unit")],
        facts={
            "extracted": extracted["sampled"],
            "extracted_reference": extracted["reference_sampled"],
            "extracted_base": base["sampled"], "membership_p": recognized["p_value"],
            "texts_recognized": recognized["named"], "texts_tested": recognized["texts"],
            "recognized": recognized["p_value"] <= RECOGNIZED,
        },
    )  # fmt: skip


def _open(sentence: str, needs: str = "") -> Stage:
    return Stage(name="passages", state="open", sentence=sentence, needs=needs)


def _negative_control(extracted: Summary, recognized: Summary) -> tuple[str, bool | None]:
    """A sentence on the control half of --never, and whether it looks like the other half."""
    p, membership_p = extracted["p_value"], recognized["p_value"]
    if p is None:
        return "No text of the control half of --never is long enough for a passage.", None
    sentence = (
        f"Half of --never: {_percent(extracted['sampled'])} of passages extracted (p = {p:.2g}), "
        f"{recognized['named']} of {recognized['texts']} texts recognized (p = {membership_p:.2g})."
    )
    return sentence, min(p, membership_p) > CONTROL_LEVEL / 2


def _finding(extracted: Summary, base: Summary, p: float | None, least: float) -> tuple[State, str]:
    """The state and the sentence of the stage, by the passages that are extracted."""
    if p is None or extracted["sampled"] is None:
        return "open", "No text is long enough for a passage."
    shares = (extracted["sampled"], extracted["reference_sampled"], base["sampled"])
    trained_share, never_share, base_share = map(_percent, shares)
    sentence = f"{trained_share} of training passages extracted "
    sentence += f"(--never: {never_share}, base: {base_share})"
    if p <= LEVELS["passages"]:
        by_base = base["p_value"] is not None and base["p_value"] <= RECOGNIZED
        if by_base or extracted["sampled"] <= (base["sampled"] or 0.0):
            return "open", f"{sentence}. The base extracts them, too."
        return "leak", f"{sentence}; p = {p:.2g}."
    if least > LEVELS["passages"]:
        return "open", f"{sentence}. Too few texts to decide."
    for check in extracted["claim"]["checks"]:
        if (check["name"], check["state"]) == ("comparable", "failed"):
            return "open", check["sentence"]
    return "clear", f"{sentence}."


def _rows(extracted: Summary, base: Summary, recognized: Summary) -> list[dict[str, Any]]:
    decodings = {"sampled": "one of 100 samples", "greedy": "greedy decoding"}
    rows = [
        (
            f"passages of {SUFFIX} tokens, {decoding}",
            extracted[key], extracted[f"reference_{key}"], base[key],
        )
        for key, decoding in decodings.items()
    ]  # fmt: skip
    share = recognized["named"] / max(1, recognized["texts"])
    rows.append(("texts recognized as used", share, None, None))
    columns = ("measured", "trained", "never", "base")
    return [{"stage": "passages", **dict(zip(columns, row, strict=True))} for row in rows]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"
