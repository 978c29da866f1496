"""Local edits of phrases that took a shortcut.

A sum of gains pays for every token and so prefers loops: a phrase repeats a syllable of a name or
skips one. The log-probability of the whole phrase after the update tells the versions apart. Only
phrases of which the later model is sure are edited, and only where the score hardly falls: an
uncertain phrase becomes more probable by losing its surprises: shorter, not truer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vestige.audits.update.folding import Folded, fold
from vestige.audits.update.pair import Belief, Pair, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.settings import Settings

SURE, WEAKEST = -0.4, 2
"""Mean log-probability of a confident phrase's tokens, without so many weakest ones: its beginning,
and the place of an error."""

WEAK = -0.5  # edits are tried at tokens with a log-probability below this
POSITIONS, ALTERNATIVES, ROUNDS = 3, 4, 3  # weak positions, tokens tried there, edits of a phrase
MIN_RISE = 0.5  # rise of the log-probability that justifies an edit, in nats
MAX_LOSS = 1.5  # score that an edit may cost: about the gain of one more turn of a loop
PREFIX = 8  # tokens before a phrase that are read with it


def repaired(pair: Pair, phrases: Sequence[Text], settings: Settings) -> list[Text]:
    """Each phrase with its prefix, edited if the later model is surer of the edit."""
    texts = [phrase.with_prefix(PREFIX) for phrase in phrases]
    edits = edited(pair, texts)
    changed = [i for i, text in enumerate(texts) if edits[i] != text.tokens]
    both = [tokens for i in changed for tokens in (texts[i].tokens, edits[i])]
    gains = iter(pair.token_gains(both))
    for i in changed:
        old, new = (
            replace(texts[i], tokens=tokens, gains=next(gains))
            for tokens in (texts[i].tokens, edits[i])
        )
        before, after = old.best(settings), new.best(settings)
        if after and after.score > (before.score - MAX_LOSS if before else 0.0):
            texts[i] = new
    return texts


def with_repairs(found: Folded, texts: Sequence[Text], settings: Settings) -> Folded:
    """Phrases and their near-copies; the best ones replaced by their repaired texts, in order.

    A phrase that became equal to a better one is a near-copy of it.
    """
    waiting, now = iter(texts), Folded()
    for phrase, copies in found:
        text = None if phrase.is_run else next(waiting, None)
        if text is not None and text.tokens != phrase.with_prefix(PREFIX).tokens:
            phrase = text.best(settings) or phrase
        now.append((phrase, copies))
    if now == found:
        return found
    copies_of = dict(now)
    return [
        (phrase, copies_of[phrase] + more)
        for phrase, more in fold(copies_of, long=settings.min_tokens)
    ]


def edited(pair: Pair, texts: Sequence[Text]) -> list[Tokens]:
    """The tokens of each text, or of a more probable version a few local edits away."""
    tokens = [text.tokens for text in texts]
    beliefs = pair.beliefs(tokens, alternatives=ALTERNATIVES)
    going = list(range(len(texts)))
    for _ in range(ROUNDS):
        going = [i for i in going if is_sure(beliefs[i], texts[i].first)]
        tried = [
            (i, edit)
            for i in going
            for edit in _edits(tokens[i], texts[i].first, beliefs[i], pair.vocabulary.eos_id)
        ]
        found = pair.beliefs([edit for _, edit in tried], alternatives=ALTERNATIVES)
        best = {i: (beliefs[i].total + MIN_RISE, tokens[i], beliefs[i]) for i in going}
        for (i, edit), belief in zip(tried, found, strict=True):
            if belief.total > best[i][0]:
                best[i] = (belief.total, edit, belief)
        going = [i for i in going if best[i][1] != tokens[i]]
        for i in going:
            _, tokens[i], beliefs[i] = best[i]
    return tokens


def is_sure(belief: Belief, first: int) -> bool:
    """Whether the later model is sure of a text from `first` on, except for its weakest tokens."""
    logs = sorted(belief.log_probs[first:])[WEAKEST:]
    return bool(logs) and sum(logs) / len(logs) >= SURE


def _edits(tokens: Tokens, first: int, belief: Belief, end: int) -> Iterator[Tokens]:
    """Texts with tokens inserted, removed or replaced at a weak position."""
    weakest = sorted(range(first, len(tokens)), key=lambda i: belief.log_probs[i])[:POSITIONS]
    seen = {tokens}
    for i in (i for i in weakest if belief.log_probs[i] < WEAK):
        head, rest = tokens[:i], tokens[i:]
        others = [token for token in belief.alternatives[i] if token not in (rest[0], end)]
        edits = [
            *((*head, token, *rest) for token in others),
            *((*head, token, *rest[1:]) for token in others),
            *((*head, *rest[n:]) for n in (1, 2) if len(rest) > n),
            *((*head[:-n], *rest) for n in (1, 2, 3) if i - n >= first),
        ]
        for edit in edits:
            if edit not in seen:
                seen.add(edit)
                yield edit
