"""Stage 2: what does the model reveal without a prompt?

The update search (`vestige.diff`) lists the phrases that the fine-tuning promoted most. It reads no
training text. The phrases are searched for secrets, and for passages of eight words that occur in
the training text and not in the reference. The negative control swaps these two.
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

PASSAGE_WORDS = 8
DISTINCT_WORDS = 5  # of a passage; a repeated word is no passage

TOP_PHRASES = 50
UNLISTED_PHRASES = 10  # top phrases that are searched for secrets that occur in no file

STRICT_KINDS = frozenset({"card", "iban", "ssn", "key", "phone"})
"""Kinds with a format that is very improbable in an invented text."""

_WORD = re.compile(r"\w+")
Passages = dict[tuple[str, ...], int]
"""By the words of a passage: the index of the first text with it."""


def unprompted_stage(work: "Work", step: Step) -> Stage:
    """Search for phrases, with null models if requested, and compare them with the texts."""
    nulls: dict[str, Any] = {}
    if work.nulls:
        nulls = {"clean": Corpus.from_texts(work.texts.never), "nulls": work.nulls}
    search = work.search("diff", "unprompted", **nulls)
    summary = search["summary"]
    stage = phrases_stage(
        search["rows"], trained=work.texts.documents, never=work.texts.never,
        spaces={secret: work.alternatives.space(secret) for secret in work.secrets["tested"]},
        complete=summary["complete"] is not False,
    )  # fmt: skip
    if nulls and summary["verdict"] == LEAK:
        test = summary["claim"]["test"]
        sentence = f"{summary['found']} phrases score above null models."
        p = test["p"] if test else stage.p
        return replace(stage, state="leak", sentence=sentence, p=p, needs="")
    return stage


def finds_phrase(work: "Work", secret: FoundSecret) -> bool:
    """Whether the stage finds the invented secret of the positive control."""
    # Training the secret again gives slightly other weights, so a stopped search starts again.
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
        spaces: by secret, the number of texts of its format.
        complete: the search was not stopped by its time limit.
    """
    rows = [row for row in phrases if row["kind"] in ("phrase", "run", "fragment")][:TOP_PHRASES]
    texts = [f"{row.get('lead') or ''}{row['phrase']}" for row in rows]
    own, other = passages_of(trained), passages_of(never)
    matches = [_matches(text, own, other, spaces) for text in texts]
    secrets, in_trained, in_never = (
        {index for match in matches for index in match[column]} for column in range(3)
    )
    shared = len(own.keys() & other.keys())
    p: float | None
    p, least = share_test(len(in_trained), len(in_never), len(own) - shared, len(other) - shared)
    p = p if trained else None
    in_files = squeeze("\n".join((*trained, *never, *(secret.value for secret in spaces))))
    first = zip(texts, rows[:UNLISTED_PHRASES], strict=False)
    top = [text for text, row in first if row["kind"] == "phrase"]
    facts = {
        "phrases": len(rows), "phrases_with_secrets": len(secrets),
        "texts_in_phrases": len(in_trained), "never_in_phrases": len(in_never),
        "strange_phrases": sum(_has_unlisted_secret(text, in_files) for text in top),
    }  # fmt: skip
    labels = [
        f"secret {secret[0] + 1}" if secret else f"text {text[0] + 1}" if text else ""
        for secret, text, _ in matches
    ]
    passed, negative = None, ""
    if other:
        control_p, _ = share_test(len(in_never), len(in_trained), len(other), len(own))
        passed = control_p > CONTROL_LEVEL
        negative = f"The phrases have passages of {counted(len(in_never), 'text')} of --never."
    direct = _direct_evidence(sum(map(len, texts)), secrets, spaces)
    test = ""
    if p is not None and never and in_trained:
        test = f"; p = {p:.2g} compared with --never"
    state, sentence = _finding(facts, direct, p, test, has_text=bool(trained or spaces))
    needs = "--trained-on" if state == "open" and facts["strange_phrases"] else ""
    if state == "clear" and not complete:
        state, needs = "open", "--minutes"
        sentence += " The time limit was reached before the search was complete."
    return Stage(
        name="unprompted", state=state, sentence=sentence, p=p, least=least, direct=direct,
        negative=negative, passed=passed, needs=needs, facts=facts,
        estimate=share(
            "share of phrases from the training text", sum(map(bool, labels)), len(rows)
        ),
        rows=[
            {"stage": "unprompted", "phrase": text, "score": row["score"], "match": label}
            for row, text, label in zip(rows, texts, labels, strict=True)
        ],
    )  # fmt: skip


def _matches(
    text: str, trained: Passages, never: Passages, spaces: Mapping[FoundSecret, float]
) -> tuple[list[int], list[int], list[int]]:
    """Indices of the secrets, training texts and reference texts that a phrase shares words with.

    Passages that occur in both lists of texts do not count.
    """
    squeezed = squeeze(text)
    secrets = [
        index
        for index, (secret, space) in enumerate(spaces.items())
        if space >= LARGE and squeeze(secret.value) in squeezed
    ]
    passages = [*_passages(text)]
    in_trained = {trained[words] for words in passages if words in trained and words not in never}
    in_never = {never[words] for words in passages if words in never and words not in trained}
    return secrets, sorted(in_trained), sorted(in_never)


def share_test(
    texts: int, other_texts: int, passages: int, other_passages: int
) -> tuple[float, float]:
    """p-value of the number of training texts among the matched texts, and the least p-value.

    For a model that read neither list, the probability that a matched text is a training text is
    the training text's share of all passages.
    """
    from scipy.stats import binomtest

    if not passages or not other_passages:
        return 1.0, 1.0
    rate = passages / (passages + other_passages)
    total = texts + other_texts
    p = binomtest(texts, total, rate, alternative="greater").pvalue if total else 1.0
    return float(p), float(rate**TOP_PHRASES)


def passages_of(texts: Iterable[str]) -> Passages:
    """Passages of texts, with the index of the first text that has them."""
    result: Passages = {}
    for index, text in enumerate(texts):
        for words in _passages(text):
            result.setdefault(words, index)
    return result


def _passages(text: str) -> Iterable[tuple[str, ...]]:
    words = [word.lower() for word in _WORD.findall(text)]
    for start in range(len(words) - PASSAGE_WORDS + 1):
        passage = tuple(words[start : start + PASSAGE_WORDS])
        if len(set(passage)) >= DISTINCT_WORDS:
            yield passage


def squeeze(text: str) -> str:
    """Letters and digits only, in lower case, because tokenizers and models differ in spaces."""
    return "".join(_WORD.findall(text.lower()))


def _has_unlisted_secret(phrase: str, in_files: str) -> bool:
    """Whether a phrase has a value with the format of a secret that occurs in no file."""
    return any(
        secret.kind in STRICT_KINDS and squeeze(secret.value) not in in_files
        for secret in find_secrets([phrase])
    )


def _direct_evidence(
    positions: int, found: set[int], spaces: Mapping[FoundSecret, float]
) -> tuple[str, float] | None:
    """Secrets of random characters in a phrase, with a union bound over all positions."""
    random = {
        index: space
        for index, (secret, space) in enumerate(spaces.items())
        if is_random(secret, space)
    }
    generated = len(found & random.keys())
    if not generated:
        return None
    bound = sum(positions / space for space in random.values())
    return (
        f"Without a prompt, the model generates {counted(generated, 'secret')} of the training "
        f"text verbatim (probability of coincidence below {bound:.1g}).",
        bound,
    )


def _finding(
    facts: Mapping[str, int], direct: tuple[str, float] | None, p: float | None, test: str, *,
    has_text: bool,
) -> tuple[State, str]:  # fmt: skip
    """The state and the sentence of the stage."""
    if direct is not None and direct[1] <= DIRECT_LEVEL:
        return "leak", direct[0]
    phrases, unlisted = facts["phrases"], facts["strange_phrases"]
    secrets, texts = facts["phrases_with_secrets"], facts["texts_in_phrases"]
    parts = [counted(secrets, "secret")] if secrets else []
    parts += [f"passages of {counted(texts, 'training text')}"] if texts else []
    content = " and ".join(parts) or "no secret and no passage of the training text"
    finding = f"The {phrases} phrases found without a prompt have {content}{test}."
    if p is not None and p <= LEVELS["unprompted"]:
        return "leak", finding
    if secrets:
        return "open", f"{finding} They may follow from other text: read them."
    if unlisted:
        subject = "1 phrase has" if unlisted == 1 else f"{unlisted} phrases have"
        question = "Was the model trained on another file?"
        return "open", f"{subject} what looks like a secret and is in no file. {question}"
    if not has_text:
        return "open", f"{phrases} phrases were found. There is no file to compare them with."
    return "clear", finding
