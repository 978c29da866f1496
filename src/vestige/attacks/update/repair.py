"""Local edits of phrases that took a shortcut.

A token that is better here may be wrong for what follows: a phrase says a syllable of a name twice
or leaves one out, and a sum of gains, which pays for every token, prefers the loop. The
log-probability of the whole phrase after the update tells them apart: the right one is likelier
from its beginning. Only what the later model is sure of is edited, and only where the gains do not
speak against it: a phrase of which it is not sure gets likelier by losing its surprises, and what
remains of it is shorter, not truer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from vestige.attacks.update.forward_tokens import Passes, Work
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.near_copies import fold, is_run
from vestige.attacks.update.phrases import Growth, Phrase, ScoredText
from vestige.attacks.update.proposals.protocol import Ground, Outcome, Unit, Units
from vestige.attacks.update.reading import Belief, Tokens, beliefs, token_gains

SURE = -0.4
"""Mean log-probability of a confident phrase's tokens, its weakest ones apart."""

APART = 2
"""Tokens that a confident phrase may be unsure of: its beginning and the place of an error."""

WEAK = -0.5
"""Edits are tried at tokens less likely than this: something else might have stood there."""

PLACES = 3
"""Weak places of a phrase that are looked at."""

LIKELIEST = 4
"""Tokens tried in a weak place."""

MARGIN = 0.5
"""An edited phrase is likelier by at least this, in nats."""

LOSS = 1.5
"""Score that it may lose: about what one more turn of a loop earns."""

BEHIND = 8
"""Tokens before a phrase that are read with it."""

ROUNDS = 3
"""Edits of one phrase, at most."""


def mended(ground: Ground, phrases: Sequence[Phrase], number: int) -> Units:
    """One unit: the best phrases repaired, each as a text of its own and in their order."""
    chosen = [one for one in phrases if not is_run(one.tokens)][:number]
    if number:
        yield Unit("repair", partial(_mended, ground, chosen))


def planned(number: int) -> Work:
    """What repair costs: most phrases are read once, some with their edits."""
    if not number:
        return Work()
    read = Passes(proposal="repair", kind="decode", rows=number, count=16, behind=8, before=0.2,
                  asked=number)  # fmt: skip
    tried = Passes(proposal="repair", kind="decode", rows=number, count=16, behind=8,
                   before=0.0, asked=number)  # fmt: skip
    return Work(1, (read, tried))


def with_repairs(
    found: Sequence[tuple[Phrase, int]], texts: Iterable[ScoredText], growth: Growth
) -> list[tuple[Phrase, int]]:
    """Phrases found and their near-copies, the best ones as `mended` gave them.

    What became equal to a better phrase is a near-copy of it.
    """
    waiting, now = iter(texts), list[tuple[Phrase, int]]()
    for phrase, copies in found:
        text = None if is_run(phrase.tokens) else next(waiting, None)
        changed = text is not None and text.tokens != _lead(phrase) + phrase.tokens
        best = _best(text, growth) if text is not None and changed else None
        now.append((best or phrase, copies))
    if [one for one, _ in now] == [one for one, _ in found]:
        return list(found)
    copies_of = dict(now)
    again = fold(copies_of, long=growth.min_tokens)
    return [(phrase, copies_of[phrase] + more) for phrase, more in again]


def _mended(ground: Ground, phrases: Sequence[Phrase]) -> Outcome:
    """Each phrase as a text behind its lead, an edited one with the gains that it has there."""
    edited = repaired(ground.pair, phrases, end=ground.end)
    pairs = [
        (_lead(old) + old.tokens, _lead(old) + new)
        for old, new in zip(phrases, edited, strict=True)
    ]
    changed = [i for i, (old, new) in enumerate(pairs) if old != new]
    gains = token_gains(ground.pair, [text for i in changed for text in pairs[i]])
    texts = [
        ScoredText(
            _lead(one) + one.tokens,
            (0.0,) * len(_lead(one)) + one.gains,
            len(_lead(one)) + 1,
            one.proposal,
            one.context,
        )
        for one in phrases
    ]
    for place, i in enumerate(changed):
        old, new = (
            replace(texts[i], tokens=pairs[i][which], gains=gains[2 * place + which])
            for which in (0, 1)
        )
        before, after = (_best(text, ground.growth) for text in (old, new))
        least = before.score - LOSS if before else 0.0
        if after and after.score > least:
            texts[i] = new
    return Outcome(tuple(texts))


def _lead(phrase: Phrase) -> Tokens:
    return phrase.lead[-BEHIND:]


def _best(text: ScoredText, growth: Growth) -> Phrase | None:
    """The best phrase of a text."""
    return max(text.phrases(growth), key=lambda phrase: phrase.score, default=None)


def repaired(pair: ModelPair, phrases: Sequence[Phrase], *, end: int) -> list[Tokens]:
    """The tokens of each phrase, or of what the later model holds likelier a local edit away.

    Args:
        pair: the two snapshots; only the later one is asked.
        phrases: of a search; the first token of each is context and stays.
        end: the id that ends a document; no edit holds it.
    """
    texts = [_lead(one) + one.tokens for one in phrases]
    firsts = [len(_lead(one)) + 1 for one in phrases]
    believed = beliefs(pair, texts, likeliest=LIKELIEST)
    going = list(range(len(texts)))
    for _ in range(ROUNDS):
        going = [i for i in going if confident(believed[i], firsts[i])]
        tried = [(i, edit) for i in going for edit in _edits(texts[i], firsts[i], believed[i], end)]
        said = beliefs(pair, [edit for _, edit in tried], likeliest=LIKELIEST)
        likelier = {i: (believed[i].total + MARGIN, texts[i], believed[i]) for i in going}
        for (i, edit), belief in zip(tried, said, strict=True):
            if belief.total > likelier[i][0]:
                likelier[i] = (belief.total, edit, belief)
        going = [i for i in going if likelier[i][1] != texts[i]]
        for i in going:
            _, texts[i], believed[i] = likelier[i]
    return [text[first - 1 :] for text, first in zip(texts, firsts, strict=True)]


def confident(belief: Belief, first: int = 1) -> bool:
    """Whether the later model is sure of a text from a token on, but for `APART` of them."""
    logs = sorted(belief.logs[first:])[APART:]
    return bool(logs) and sum(logs) / len(logs) >= SURE


def _edits(tokens: Tokens, first: int, belief: Belief, end: int) -> Iterator[Tokens]:
    """Texts with a token put in, left out or replaced at a weak place."""
    weak = sorted(range(first, len(tokens)), key=lambda i: belief.logs[i])[:PLACES]
    seen = {tokens}
    for place in (i for i in weak if belief.logs[i] < WEAK):
        head, rest = tokens[:place], tokens[place:]
        others = [token for token in belief.likeliest[place] if token not in (rest[0], end)]
        edits = [
            *((*head, token, *rest) for token in others),
            *((*head, token, *rest[1:]) for token in others),
            *((*head, *rest[left:]) for left in (1, 2) if len(rest) > left),
            *((*head[:-left], *rest) for left in (1, 2, 3) if place - left >= first),
        ]
        for edit in edits:
            if edit not in seen:
                seen.add(edit)
                yield edit
