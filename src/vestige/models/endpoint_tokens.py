"""What a server says of every token of given texts, and the same by a tokenizer of ours.

Where a server echoes a prompt with log-probabilities, a text is one call. Where it does not, every
token is one, and only those among the likeliest have a log-probability.

A server cuts texts as its own tokenizer does. A token of ours that begins and ends where tokens of
the server's do has the sum of their log-probabilities; every other has none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vestige.data.subwords import SubwordVocabulary
from vestige.models.endpoint import Endpoint
from vestige.models.endpoint_probe import EndpointAccess
from vestige.models.endpoint_wire import Question, Reply
from vestige.models.token_scores import ShownToken

REPLACED, BYTES = "\ufffd", "bytes:"
"""What a server writes for a token that is a part of a character."""
_SEARCHED = 16


@dataclass(frozen=True)
class EndpointTokens:
    """A server as `TokenScores`.

    Args:
        endpoint: what is asked.
        access: what it can do.
        vocabulary: cuts texts into tokens where the server does not echo.
    """

    endpoint: Endpoint
    access: EndpointAccess
    vocabulary: SubwordVocabulary

    def scored(self, texts: Sequence[str]) -> list[tuple[ShownToken, ...] | None]:
        """The tokens of each text; None where the server gives no answer to it."""
        return self._one_by_one(texts) if self.access.echo == "no" else self._echoed(texts)

    def questions(self, texts: Sequence[str]) -> list[Question]:
        """All that the server will be asked about some texts."""
        if self.access.echo != "no":
            return [Question(text, shown=self.access.shown, echo=True) for text in texts if text]
        asked = [
            question
            for text in texts
            for question in self._before(text, ends(text, self.vocabulary))
            if question is not None
        ]
        return list(dict.fromkeys(asked))

    def _echoed(self, texts: Sequence[str]) -> list[tuple[ShownToken, ...] | None]:
        given = self.endpoint.ask(self.questions(texts))
        replies = dict(zip([text for text in texts if text], given, strict=True))
        found: list[tuple[ShownToken, ...] | None] = []
        for text in texts:
            reply = replies.get(text) if text else Reply("")
            found.append(None if reply is None else self._own(text, reply))
        return found

    def _own(self, text: str, reply: Reply) -> tuple[ShownToken, ...]:
        """The tokens of the prompt, each with what was shown of its place."""
        if self.access.echo == "right":  # the last token is one that was written
            return reply.tokens[:-1] if reply.text != text else reply.tokens
        own = reply.tokens
        return tuple(
            said_of(token.text, () if before is None else before.likeliest)
            for token, before in zip(own, [None, *own], strict=False)
        )

    def _before(self, text: str, cuts: Sequence[int]) -> list[Question | None]:
        kind, shown = self.access.kind, self.access.shown
        return [
            Question(text[:cut], kind=kind, shown=shown) if cut or self.access.empty else None
            for cut in [0, *cuts[:-1]]
        ]

    def _one_by_one(self, texts: Sequence[str]) -> list[tuple[ShownToken, ...] | None]:
        cuts = [ends(text, self.vocabulary) for text in texts]
        asked = self.questions(texts)
        replies = dict(zip(asked, self.endpoint.ask(asked), strict=True))
        found: list[tuple[ShownToken, ...] | None] = []
        for text, own in zip(texts, cuts, strict=True):
            tokens = []
            for begin, end, question in zip(
                [0, *own], own, self._before(text, own) if own else [], strict=False
            ):
                reply = None if question is None else replies[question]
                likeliest = reply.tokens[-1].likeliest if reply and reply.tokens else ()
                tokens.append(said_of(text[begin:end], likeliest))
            found.append(tuple(tokens))
        return found


def said_of(token: str, likeliest: tuple[tuple[str, float], ...]) -> ShownToken:
    """A token whose log-probability is known only if it is among the likeliest."""
    return ShownToken(token, dict(likeliest).get(token, math.nan), likeliest)


def ends(text: str, vocabulary: SubwordVocabulary) -> list[int]:
    """Where each token of ours ends in a text, in characters."""
    encoding = vocabulary.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    # Offsets may leave a token's blank out: a token begins where the one before it ends.
    return list(accumulate((end for _, end in encoding.offsets), max))


def places(text: str, tokens: Sequence[ShownToken]) -> dict[int, int]:
    """Which of a server's tokens begins at a character of the text; its end counts as one more.

    Of those that are no text by themselves (parts of a character) only the first has a place.

    Example:
        >>> places("a cat", [ShownToken("a", 0.0), ShownToken(" cat", -1.0)])
        {0: 0, 1: 1, 5: 2}
    """
    found, at, lost = {}, 0, False
    for number, token in enumerate(tokens):
        piece = token.text.lstrip() if not number and not text[:1].isspace() else token.text
        plain = REPLACED not in piece and piece
        where = text.find(piece, at, at + _SEARCHED + len(piece)) if plain and lost else at
        if not plain or where < 0 or not text.startswith(piece, where):
            if not lost:  # those before it end here
                found[at], lost = number, True
            continue
        found[where], at, lost = number, where + len(piece), False
    if lost or at == len(text):
        found[len(text)] = len(tokens)
    return found


def by_ours(
    text: str, tokens: Sequence[ShownToken], cuts: Sequence[int]
) -> list[tuple[float, ShownToken | None]]:
    """A server's tokens by ours: each one's log-probability, and the token that it is, if one.

    Nothing is known where its tokens do not spell ours: some show no text for the marks of a chat
    template, or leave them out.

    Args:
        text: what both are of.
        tokens: the server's.
        cuts: where ours end, as `ends` gives them.
    """
    begins = places(text, tokens)
    found: list[tuple[float, ShownToken | None]] = []
    for begin, end in zip([0, *cuts], cuts, strict=False):
        first, behind = begins.get(begin), begins.get(end)
        if begin == end or first is None or behind is None:
            found.append((math.nan, None))
            continue
        inside = tokens[first:behind]
        if not _spells([token.text for token in inside], text[begin:end], first=not begin):
            found.append((math.nan, None))
            continue
        whole = math.fsum(token.log_prob for token in inside)
        found.append((whole, inside[0] if len(inside) == 1 else None))
    return found


def _spells(pieces: Sequence[str], text: str, *, first: bool) -> bool:
    """Whether tokens make up a text, as far as parts of characters can be read."""
    if any(REPLACED in piece or piece.startswith(BYTES) for piece in pieces):
        return True
    joined = "".join(pieces)
    return joined == text or (first and joined.lstrip() == text)
