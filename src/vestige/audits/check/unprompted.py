"""Stage 2: what does the model reveal without a prompt?

The update search (`vestige.diff`) lists the phrases that the fine-tuning promoted most. It reads no
training text. Its phrases are then compared with the secrets, and with passages of eight words of
the training text that do not occur in the reference, and the reverse as a control.
"""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vestige.audits.check.finder import find_secrets
from vestige.audits.check.secrets import LARGE, RANDOM
from vestige.audits.check.verdict import CONTROL_LEVEL, Stage, State, counted, share
from vestige.claims import DIRECT_LEVEL, LEAK
from vestige.data.corpus import Corpus
from vestige.data.secret_alternatives import FoundSecret
from vestige.monitor import Step

if TYPE_CHECKING:
    from vestige.audits.check.work import Work

PASSAGE = 8  # words of a passage
DIFFERENT = 5  # different words that a passage must have: repeated words are no passage

TOP = 50
STRANGE = 10  # first phrases that are searched for secrets of unknown origin

STRICT = frozenset({"card", "iban", "ssn", "key", "phone"})
"""Kinds with a checkable format, so that an invented text is hardly ever one."""

_WORD = re.compile(r"\w+")
Passages = dict[tuple[str, ...], int]
"""The number of the first text with a passage, by its words."""


def unprompted_stage(work: "Work", step: Step) -> Stage:
    """Search for phrases, with null models if they are wanted, and compare them."""
    nulls: dict[str, Any] = {}
    if work.nulls:
        nulls = {"clean": Corpus.from_texts(work.texts.never), "nulls": work.nulls}
    found = work.search("diff", "unprompted", **nulls)
    stage = phrases_stage(
        found["rows"],
        trained=work.texts.documents,
        never=work.texts.never,
        spaces={one: work.alternatives.space(one) for one in work.secrets["tested"]},
        complete=found["summary"]["complete"] is not False,
    )
    if nulls and found["summary"]["verdict"] == LEAK:
        test = found["summary"]["claim"]["test"]
        sentence = f"{found['summary']['found']} phrases score above null models."
        p = test["p"] if test else stage.p
        return replace(stage, state="leak", sentence=sentence, p=p, needs="")
    return stage


def finds_phrase(work: "Work", secret: FoundSecret) -> bool:
    """Whether the stage finds an invented secret that the model knows."""
    # Weights trained on other threads have other last bits: a stopped search begins again.
    shutil.rmtree(work.folder / "diff-control.partial", ignore_errors=True)
    rows = work.search("diff control", "control")["rows"]
    return any(squeeze(secret.value) in squeeze(f"{row['lead']}{row['phrase']}") for row in rows)


def phrases_stage(
    phrases: Sequence[Mapping[str, Any]],
    *,
    trained: Sequence[str],
    never: Sequence[str],
    spaces: Mapping[FoundSecret, float],
    complete: bool = True,
) -> Stage:
    """Compare the rows of `vestige.diff` with texts and secrets.

    Args:
        phrases: the rows.
        trained: the training texts.
        never: texts of the reference.
        spaces: secrets, with the number of texts of their format.
        complete: the search was not stopped by its time limit.
    """
    rows = [row for row in phrases if row["kind"] in ("phrase", "run", "fragment")][:TOP]
    texts = [f"{row.get('lead') or ''}{row['phrase']}" for row in rows]
    own, rest = passages_of(trained), passages_of(never)
    both = own.keys() & rest.keys()
    table = [_matched(text, own, rest, spaces) for text in texts]
    numbers = {
        name: len({one for row in table for one in row[name]})
        for name in ("secrets", "read", "unread")
    }
    p, least = compared(
        numbers["read"], numbers["unread"], len(own) - len(both), len(rest) - len(both)
    )
    known = "\n".join((*trained, *never, *(one.value for one in spaces)))
    first = [t for t, row in zip(texts, rows[:STRANGE], strict=False) if row["kind"] == "phrase"]
    facts = {
        "phrases": len(rows), "phrases_with_secrets": numbers["secrets"],
        "texts_in_phrases": numbers["read"], "never_in_phrases": numbers["unread"],
        "strange_phrases": _strange(first, squeeze(known)),
    }  # fmt: skip
    stage = Stage(
        name="unprompted", state="open", sentence="", p=p if trained else None, least=least,
        direct=_direct(texts, {one for row in table for one in row["secrets"]}, spaces),
        estimate=share(
            "share of phrases from the training text",
            sum(bool(row["match"]) for row in table), len(rows),
        ),
        rows=[
            {"stage": "unprompted", "phrase": text, "score": row["score"], "match": found["match"]}
            for row, text, found in zip(rows, texts, table, strict=True)
        ],
        facts=facts,
    )  # fmt: skip
    if rest:
        passed = compared(numbers["unread"], numbers["read"], len(rest), len(own))[0]
        stage = replace(
            stage, passed=passed > CONTROL_LEVEL,
            negative=f"The phrases have passages of {counted(numbers['unread'], 'text')} of "
            "--never.",
        )  # fmt: skip
    state, sentence = _decided(stage, bool(never), bool(trained or spaces))
    needs = "--trained-on" if state == "open" and facts["strange_phrases"] else ""
    if state == "clear" and not complete:
        state, needs = "open", "--minutes"
        sentence = f"{sentence} The time limit was reached before the search was complete."
    return replace(stage, state=state, sentence=sentence, needs=needs)


def _matched(
    text: str, own: Passages, rest: Passages, spaces: Mapping[FoundSecret, float]
) -> dict[str, Any]:
    """The secrets and the texts of which a phrase has a piece, by number."""
    squeezed = squeeze(text)
    secrets = [
        number
        for number, (one, space) in enumerate(spaces.items())
        if space >= LARGE and squeeze(one.value) in squeezed
    ]
    passages = [one for one in _passages(text) if (one in own) != (one in rest)]
    read = sorted({own[one] for one in passages if one in own})
    match = f"secret {secrets[0] + 1}" if secrets else f"text {read[0] + 1}" if read else ""
    unread = [rest[one] for one in passages if one in rest]
    return {"secrets": secrets, "read": read, "unread": unread, "match": match}


def compared(own: int, never: int, passages: int, others: int) -> tuple[float, float]:
    """p-value that so many matched texts are training texts, and the least possible.

    If the model read neither, a matched text is a training text with the share of the passages.
    """
    from scipy.stats import binomtest

    if not passages or not others:
        return 1.0, 1.0
    share_ = passages / (passages + others)
    total = own + never
    p = binomtest(own, total, share_, alternative="greater").pvalue if total else 1.0
    return float(p), float(share_**TOP)


def passages_of(texts: Iterable[str]) -> Passages:
    """Passages of texts, with the number of the first text."""
    found: Passages = {}
    for number, text in enumerate(texts):
        for passage in _passages(text):
            found.setdefault(passage, number)
    return found


def _passages(text: str) -> Iterable[tuple[str, ...]]:
    words = [word.lower() for word in _WORD.findall(text)]
    for start in range(len(words) - PASSAGE + 1):
        passage = tuple(words[start : start + PASSAGE])
        if len(set(passage)) >= DIFFERENT:
            yield passage


def squeeze(text: str) -> str:
    """Letters and digits only, in lower case: tokenizers and models differ in spaces."""
    return "".join(_WORD.findall(text.lower()))


def _strange(phrases: Sequence[str], known: str) -> int:
    """Phrases that hold a secret by its format that occurs in none of the files."""
    return sum(
        any(one.kind in STRICT and squeeze(one.value) not in known for one in find_secrets([text]))
        for text in phrases
    )


def _direct(
    texts: Sequence[str], found: set[int], spaces: Mapping[FoundSecret, float]
) -> tuple[str, float] | None:
    """Secrets of random characters in a phrase, with a union bound over all positions."""
    kinds = [one.kind for one in spaces]
    generated = sum(kinds[one] in RANDOM for one in found)
    if not generated:
        return None
    positions = sum(map(len, texts))
    bound = sum(
        positions / space for one, space in spaces.items() if one.kind in RANDOM and space >= LARGE
    )
    return (
        f"Without a prompt, the model generates {counted(generated, 'secret')} of the training "
        f"text verbatim (probability of coincidence below {bound:.1g}).",
        bound,
    )


def _decided(stage: Stage, never: bool, compared_with: bool) -> tuple[State, str]:
    """The state and the sentence of the stage."""
    if stage.direct is not None and stage.direct[1] <= DIRECT_LEVEL:
        return "leak", stage.direct[0]
    phrases, secrets, texts, _, strange = stage.facts.values()
    parts = [counted(secrets, "secret")] if secrets else []
    parts += [f"passages of {counted(texts, 'training text')}"] if texts else []
    held = " and ".join(parts) or "no secret and no passage of the training text"
    found = f"The {phrases} phrases found without a prompt have {held}"
    if stage.p is not None and never and texts:
        found = f"{found}; p = {stage.p:.2g} compared with --never"
    if stage.p is not None and stage.p <= stage.level:
        return "leak", f"{found}."
    if secrets:
        return "open", f"{found}. They may follow from other text: read them."
    if strange:
        some = "1 phrase has" if strange == 1 else f"{strange} phrases have"
        question = "Was the model trained on another file?"
        return "open", f"{some} what looks like a secret and is in no file. {question}"
    if not compared_with:
        return "open", f"{phrases} phrases were found. There is no file to compare them with."
    return "clear", f"{found}."
