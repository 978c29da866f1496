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
from vestige.audits.check.secrets import LARGE, is_random
from vestige.audits.check.verdict import CONTROL_LEVEL, LEVELS, Stage, State, counted, share
from vestige.claims import DIRECT_LEVEL, LEAK
from vestige.data.corpus import Corpus
from vestige.data.secrets.alternatives import FoundSecret
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
    summary = found["summary"]
    stage = phrases_stage(
        found["rows"], trained=work.texts.documents, never=work.texts.never,
        spaces={one: work.alternatives.space(one) for one in work.secrets["tested"]},
        complete=summary["complete"] is not False,
    )  # fmt: skip
    if nulls and summary["verdict"] == LEAK:
        test = summary["claim"]["test"]
        sentence = f"{summary['found']} phrases score above null models."
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
    table = [_matched(text, own, rest, spaces) for text in texts]
    secrets, read, unread = ({one for row in table for one in row[place]} for place in range(3))
    both = len(own.keys() & rest.keys())
    p: float | None
    p, least = compared(len(read), len(unread), len(own) - both, len(rest) - both)
    p = p if trained else None
    known = squeeze("\n".join((*trained, *never, *(one.value for one in spaces))))
    first = [t for t, row in zip(texts, rows[:STRANGE], strict=False) if row["kind"] == "phrase"]
    facts = {
        "phrases": len(rows), "phrases_with_secrets": len(secrets), "texts_in_phrases": len(read),
        "never_in_phrases": len(unread), "strange_phrases": _strange(first, known),
    }  # fmt: skip
    matches = [
        f"secret {found[0] + 1}" if found else f"text {numbers[0] + 1}" if numbers else ""
        for found, numbers, _ in table
    ]
    passed, negative = None, ""
    if rest:
        passed = compared(len(unread), len(read), len(rest), len(own))[0] > CONTROL_LEVEL
        negative = f"The phrases have passages of {counted(len(unread), 'text')} of --never."
    direct = _direct(sum(map(len, texts)), secrets, spaces)
    compares = f"; p = {p:.2g} compared with --never" if p is not None and never and read else ""
    state, sentence = _decided(facts, direct, p, compares, bool(trained or spaces))
    needs = "--trained-on" if state == "open" and facts["strange_phrases"] else ""
    if state == "clear" and not complete:
        state, needs = "open", "--minutes"
        sentence += " The time limit was reached before the search was complete."
    return Stage(
        name="unprompted", state=state, sentence=sentence, p=p, least=least, direct=direct,
        negative=negative, passed=passed, needs=needs, facts=facts,
        estimate=share(
            "share of phrases from the training text", sum(map(bool, matches)), len(rows)
        ),
        rows=[
            {"stage": "unprompted", "phrase": text, "score": row["score"], "match": match}
            for row, text, match in zip(rows, texts, matches, strict=True)
        ],
    )  # fmt: skip


def _matched(
    text: str, own: Passages, rest: Passages, spaces: Mapping[FoundSecret, float]
) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the secrets, training texts and reference texts of which a phrase has a piece."""
    squeezed = squeeze(text)
    secrets = [
        number
        for number, (one, space) in enumerate(spaces.items())
        if space >= LARGE and squeeze(one.value) in squeezed
    ]
    passages = [*_passages(text)]
    read = {own[one] for one in passages if one in own and one not in rest}
    unread = {rest[one] for one in passages if one in rest and one not in own}
    return secrets, sorted(read), sorted(unread)


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
    positions: int, found: set[int], spaces: Mapping[FoundSecret, float]
) -> tuple[str, float] | None:
    """Secrets of random characters in a phrase, with a union bound over all positions."""
    random = {n: space for n, (one, space) in enumerate(spaces.items()) if is_random(one, space)}
    generated = len(found & random.keys())
    if not generated:
        return None
    bound = sum(positions / space for space in random.values())
    return (
        f"Without a prompt, the model generates {counted(generated, 'secret')} of the training "
        f"text verbatim (probability of coincidence below {bound:.1g}).",
        bound,
    )


def _decided(
    facts: Mapping[str, int], direct: tuple[str, float] | None, p: float | None, compares: str,
    has_text: bool,
) -> tuple[State, str]:  # fmt: skip
    """The state and the sentence of the stage."""
    if direct is not None and direct[1] <= DIRECT_LEVEL:
        return "leak", direct[0]
    phrases, secrets, texts, _, strange = facts.values()
    parts = [counted(secrets, "secret")] if secrets else []
    parts += [f"passages of {counted(texts, 'training text')}"] if texts else []
    held = " and ".join(parts) or "no secret and no passage of the training text"
    found = f"The {phrases} phrases found without a prompt have {held}{compares}."
    if p is not None and p <= LEVELS["unprompted"]:
        return "leak", found
    if secrets:
        return "open", f"{found} They may follow from other text: read them."
    if strange:
        some = "1 phrase has" if strange == 1 else f"{strange} phrases have"
        question = "Was the model trained on another file?"
        return "open", f"{some} what looks like a secret and is in no file. {question}"
    if not has_text:
        return "open", f"{phrases} phrases were found. There is no file to compare them with."
    return "clear", found
