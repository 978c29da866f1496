"""Local edits of phrases that took a shortcut.

A sum of gains rewards every token and so prefers loops: a phrase repeats a syllable of a name or
skips one. The log-probability of the complete phrase after the update distinguishes the versions.
Only phrases with a high probability after the update are edited, and only if the score falls
little. An uncertain phrase becomes more probable when it loses surprising tokens, but not correct.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vestige.audits.update.folding import Folded, fold
from vestige.audits.update.pair import Pair, Prediction, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.settings import Settings

SURE, WEAKEST = -0.4, 2
"""Least mean log-probability of a confident phrase's tokens, without this many weakest ones: its
beginning, and the position of an error."""

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
    versions = [tokens for i in changed for tokens in (texts[i].tokens, edits[i])]
    gains = iter(pair.token_gains(versions))
    for i in changed:
        old, new = (
            replace(texts[i], tokens=tokens, gains=next(gains))
            for tokens in (texts[i].tokens, edits[i])
        )
        old_best, new_best = old.best(settings), new.best(settings)
        if new_best and new_best.score > (old_best.score - MAX_LOSS if old_best else 0.0):
            texts[i] = new
    return texts


def with_repairs(phrases: Folded, repairs: Sequence[Text], settings: Settings) -> Folded:
    """Phrases and their near-copies; the best ones replaced by their repairs, which are in order.

    A phrase that became equal to a better one is a near-copy of it.
    """
    remaining, result = iter(repairs), Folded()
    for phrase, copies in phrases:
        repair = None if phrase.is_repetitive else next(remaining, None)
        if repair is not None and repair.tokens != phrase.with_prefix(PREFIX).tokens:
            phrase = repair.best(settings) or phrase
        result.append((phrase, copies))
    if result == phrases:
        return phrases
    copies_of = dict(result)
    return [
        (phrase, copies_of[phrase] + copies)
        for phrase, copies in fold(copies_of, long=settings.min_tokens)
    ]


def edited(pair: Pair, texts: Sequence[Text]) -> list[Tokens]:
    """The tokens of each text, or of a more probable version a few local edits away."""
    tokens = [text.tokens for text in texts]
    predictions = pair.predictions(tokens, top=ALTERNATIVES)
    active = list(range(len(texts)))
    for _ in range(ROUNDS):
        active = [i for i in active if is_sure(predictions[i], texts[i].first)]
        candidates = [
            (i, edit)
            for i in active
            for edit in _edits(tokens[i], texts[i].first, predictions[i], pair.vocabulary.eos_id)
        ]
        edit_predictions = pair.predictions([edit for _, edit in candidates], top=ALTERNATIVES)
        best = {i: (predictions[i].total + MIN_RISE, tokens[i], predictions[i]) for i in active}
        for (i, edit), prediction in zip(candidates, edit_predictions, strict=True):
            if prediction.total > best[i][0]:
                best[i] = (prediction.total, edit, prediction)
        active = [i for i in active if best[i][1] != tokens[i]]
        for i in active:
            _, tokens[i], predictions[i] = best[i]
    return tokens


def is_sure(prediction: Prediction, first: int) -> bool:
    """Whether the later model is sure of a text from `first` on, except for its weakest tokens."""
    log_probs = sorted(prediction.log_probs[first:])[WEAKEST:]
    return bool(log_probs) and sum(log_probs) / len(log_probs) >= SURE


def _edits(tokens: Tokens, first: int, prediction: Prediction, end: int) -> Iterator[Tokens]:
    """Texts with tokens inserted, removed or replaced at a weak position."""
    weakest = sorted(range(first, len(tokens)), key=lambda i: prediction.log_probs[i])[:POSITIONS]
    seen = {tokens}
    for i in (i for i in weakest if prediction.log_probs[i] < WEAK):
        head, rest = tokens[:i], tokens[i:]
        others = [token for token in prediction.top_tokens[i] if token not in (rest[0], end)]
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
