"""Stage 3: can passages of the training text be extracted, and is the training text recognized?

`vestige.extract` samples passages of the training text and of the reference half, from the model
and from its base; `vestige.membership` tests whether the training text is recognized at all. If it
is not, the file is the wrong one or left no trace.
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
LEAST_COMPARED = 20  # texts in each list; with fewer, nothing can be compared
MOST_TEXTS, LEAST_TEXTS = 400, 40  # of each list; with time for fewer, the stage does not run

READINGS = 6
"""Times that a text is read: a text of each of three lists, by the model and by its base."""

RECOGNIZED = 0.05
"""Level at which the model recognizes the training text, or its base generates passages."""

Summary = Mapping[str, Any]


def passages_stage(work: "Work", step: Step) -> Stage:
    """Extract passages of the training text, the reference and the control half."""
    most = _texts_in_time(work)
    texts = work.texts
    secrets = work.secrets["tested"][:MOST_SECRETS]
    placebos = [*work.chosen["reference"], *work.chosen["control"]]
    lists = ((texts.trained, secrets), (texts.reference, placebos), (texts.control, placebos))
    try:
        if most < LEAST_TEXTS:
            raise TimeoutError
        return _compared(work, *(
            _spread(_without(own, [one.value for one in found]), most) for own, found in lists
        ))  # fmt: skip
    except TimeoutError:
        return _open("The time limit was reached before enough was tested.", "--minutes")


def finds_passage(work: "Work", text: str) -> bool:
    """Whether the stage finds an invented text that the model knows."""
    tokens = len(work.model.vocabulary.encode(text))
    found = vestige.extract(
        work.model, Corpus.from_texts([text]), as_="texts", prefix=4, suffix=tokens - 4,
        seed=work.run.seed,
    )  # fmt: skip
    return bool(found.summary["greedy"])


def _texts_in_time(work: "Work") -> int:
    """How many texts of each list can be read in the time of the stage; a stopped check that
    resumes reads the same."""
    if (known := work.run.store.get("texts in time")) is not None:
        return int(known)
    texts = work.texts.trained[:MOST_TEXTS]
    tokens = sum(map(len, work.model.vocabulary.encode_batch(list(texts))))
    each = work.seconds_per_token * tokens / max(1, len(texts))
    seconds = max(0.0, work.end("passages") - time.monotonic())
    most = int(min(MOST_TEXTS, seconds / max(1e-9, each * READINGS)))
    work.run.store["texts in time"] = most
    return most


def _without(texts: Sequence[str], values: Sequence[str]) -> Sequence[str]:
    """Texts without secrets, which have a stage of their own: a secret that many texts repeat
    makes them differ from the reference. All texts, if that leaves too few."""
    squeezed = [*map(squeeze, values)]
    rest = [text for text in texts if not any(value in squeeze(text) for value in squeezed)]
    return rest if len(rest) >= LEAST_TEXTS else texts


def _spread(texts: Sequence[str], most: int) -> Sequence[str]:
    """At most so many texts, spread over the list."""
    step = max(1.0, len(texts) / most)
    return [texts[int(place * step)] for place in range(min(most, len(texts)))]


def _compared(
    work: "Work", trained: Sequence[str], reference: Sequence[str], control: Sequence[str]
) -> Stage:
    """Run the verbs on the lists, and compare the first with the second."""
    if min(len(trained), len(reference)) < LEAST_COMPARED:
        few = f"{len(trained)} training texts, and {len(reference)} texts in each half of --never"
        return _open(f"{few}; at least {LEAST_COMPARED} are needed.")
    compared_with = Corpus.from_texts(reference)

    def summary(key: str, verb: Callable[..., Result], *given: Any, **options: Any) -> Summary:
        if f"verb/{key}" not in work.run.store and time.monotonic() > work.end("passages"):
            raise TimeoutError
        found: Summary = work.once(key, lambda _: verb(
            *given, reference=compared_with, seed=work.run.seed,
            statistics=work.folder / "statistics", **options,
        ))["summary"]  # fmt: skip
        return found

    def extract(key: str, texts: Sequence[str], model: LanguageModel) -> Summary:
        return summary(
            key, vestige.extract, model, Corpus.from_texts(texts), as_="texts", prefix=PREFIX,
            suffix=SUFFIX,
        )  # fmt: skip

    def membership(key: str, texts: Sequence[str]) -> Summary:
        given = Corpus.from_texts(texts)
        return summary(key, vestige.membership, work.model, texts=given, base=work.base)

    try:
        own = extract("extract", trained, work.model)
        base = extract("extract base", trained, work.base)
    except DataError as error:
        return _open(f"{error.problem}.")
    used = membership("membership", trained)
    passed, few = None, f"The control half of --never has {len(control)} texts"
    negative = f"{few}; {LEAST_COMPARED} are needed."
    if len(control) >= LEAST_COMPARED:
        try:
            extracted = extract("extract control", control, work.model)
            negative, passed = _negative(extracted, membership("membership control", control))
        except DataError as error:
            negative = f"{error.problem}."
    p, test, estimate = own["p_value"], own["claim"]["test"], own["claim"]["estimate"]
    least = 1.0 if test is None else float(test["least"])
    needs, (state, sentence) = "", _decided(own, base, p, least)
    if work.membership and used["p_value"] <= LEVELS["passages"]:
        state, p = "leak", used["p_value"]
        sentence = f"{used['named']} of {used['texts']} training texts are recognized; "
        sentence += f"p = {p:.2g} compared with --never."
    elif state == "clear" and used["p_value"] > RECOGNIZED and not work.sure:
        state, needs = "open", "--sure"
        sentence = f"The model does not recognize the training text (p = {used['p_value']:.2g}): "
        sentence += "--trained-on is the wrong file, or training left no trace."
    return Stage(
        name="passages", state=state, sentence=sentence, p=p, least=least, negative=negative,
        passed=passed, needs=needs, rows=_rows(own, base, used),
        estimate=estimate and [estimate[one] for one in ("name", "value", "low", "high", "unit")],
        facts={
            "extracted": own["sampled"], "extracted_reference": own["reference_sampled"],
            "extracted_base": base["sampled"], "membership_p": used["p_value"],
            "texts_recognized": used["named"], "texts_tested": used["texts"],
            "recognized": used["p_value"] <= RECOGNIZED,
        },
    )  # fmt: skip


def _open(sentence: str, needs: str = "") -> Stage:
    return Stage(name="passages", state="open", sentence=sentence, needs=needs)


def _negative(extracted: Summary, used: Summary) -> tuple[str, bool | None]:
    """The control half against the reference half."""
    p, recognized = extracted["p_value"], used["p_value"]
    if p is None:
        return "No text of the control half of --never is long enough for a passage.", None
    sentence = (
        f"Half of --never: {_percent(extracted['sampled'])} of passages extracted (p = {p:.2g}), "
        f"{used['named']} of {used['texts']} texts recognized (p = {recognized:.2g})."
    )
    return sentence, min(p, recognized) > CONTROL_LEVEL / 2


def _decided(own: Summary, base: Summary, p: float | None, least: float) -> tuple[State, str]:
    """The state and the sentence of the stage, by what is extracted."""
    if p is None or own["sampled"] is None:
        return "open", "No text is long enough for a passage."
    rates = [_percent(one) for one in (own["sampled"], own["reference_sampled"], base["sampled"])]
    others = f"--never: {rates[1]}, base: {rates[2]}"
    sentence = f"{rates[0]} of training passages extracted ({others})"
    if p <= LEVELS["passages"]:
        before = base["p_value"] is not None and base["p_value"] <= RECOGNIZED
        if before or own["sampled"] <= (base["sampled"] or 0.0):
            return "open", f"{sentence}. The base extracts them, too."
        return "leak", f"{sentence}; p = {p:.2g}."
    if least > LEVELS["passages"]:
        return "open", f"{sentence}. Too few texts to decide."
    for check in own["claim"]["checks"]:
        if (check["name"], check["state"]) == ("comparable", "failed"):
            return "open", check["sentence"]
    return "clear", f"{sentence}."


def _rows(own: Summary, base: Summary, used: Summary) -> list[dict[str, Any]]:
    ways = {"sampled": "one of 100 samples", "greedy": "greedy decoding"}
    rows = [
        (f"passages of {SUFFIX} tokens, {how}", own[key], own[f"reference_{key}"], base[key])
        for key, how in ways.items()
    ]
    rows.append(("texts recognized as used", used["named"] / max(1, used["texts"]), None, None))
    columns = ("measured", "trained", "never", "base")
    return [{"stage": "passages", **dict(zip(columns, row, strict=True))} for row in rows]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"
