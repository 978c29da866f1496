"""What a server shows of texts: log-probabilities of tokens, and the most probable next words.

A server echoes a prompt with log-probabilities: a text is one call.

A server splits texts with its own tokenizer. A token of ours that begins and ends where tokens of
the server do has the sum of their log-probabilities; every other has none.

For words, tokens such as " neigh" and "bour" are joined. After a text that ends with a word, a
token that begins with a blank begins the next word; one that does not continues the last word and
is left out. A token that is a known word stands for it. One that begins known words is a piece: the
server continues it by its most probable tokens until the word ends, a call for each piece. Every
other token stands for itself and keeps its rank. So a list is in the order of the first pieces'
probabilities, and a piece leads to one word, its most probable.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from vestige.data.subwords import SubwordVocabulary
from vestige.models.remote.openai import Question, Reply, ShownToken
from vestige.models.remote.probe import EndpointAccess
from vestige.models.remote.server import Endpoint
from vestige.models.top_k import Context

REPLACED, BYTES = "\ufffd", "bytes:"
"""What a server writes for a token that is a part of a character."""
_SEARCHED = 16
GOES_ON = 8
"""Tokens that are generated at a time to end a word."""
LONGEST_PIECES = 24
"""Most tokens of a word."""


def echoed(
    endpoint: Endpoint, access: EndpointAccess, texts: Sequence[str]
) -> list[tuple[ShownToken, ...] | None]:
    """The tokens of each text, which they spell; None if the server does not answer."""
    sent = [text for text in texts if text]
    asked = endpoint.ask([Question(text, shown=access.shown, echo=True) for text in sent])
    replies = {"": Reply("")} | dict(zip(sent, asked, strict=True))
    return [_own(text, replies[text], access) for text in texts]


def _own(text: str, reply: Reply | None, access: EndpointAccess) -> tuple[ShownToken, ...] | None:
    """The tokens of the prompt, each with what is shown of its position."""
    if reply is None:
        return None
    own = reply.tokens
    if access.echo == "right":  # the last token is a generated one
        return own[:-1] if reply.text != text else own
    before = ((), *(token.likeliest for token in own))
    return tuple(_among(token.text, top) for token, top in zip(own, before, strict=False))


def _among(token: str, likeliest: tuple[tuple[str, float], ...]) -> ShownToken:
    """A token whose log-probability is known only if it is among the most probable."""
    return ShownToken(token, dict(likeliest).get(token, math.nan), likeliest)


def ends(text: str, vocabulary: SubwordVocabulary) -> list[int]:
    """Where each token of ours ends in a text, in characters."""
    encoding = vocabulary.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    # Offsets may leave a token's blank out: a token begins where the one before it ends.
    return list(accumulate((end for _, end in encoding.offsets), max))


def places(text: str, tokens: Sequence[ShownToken]) -> dict[int, int]:
    """Which of a server's tokens begins at a character of the text; its end counts as one more.

    Of tokens that are no text by themselves (parts of a character) only the first has a position.
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
    """A server's tokens by ours, which end at `cuts`: each log-probability, and single tokens.

    Nothing is known where its tokens do not spell ours: some show no text for the marks of a chat
    template, or leave them out.
    """
    begins = places(text, tokens)
    found: list[tuple[float, ShownToken | None]] = []
    for begin, end in pairwise([0, *cuts]):
        inside: Sequence[ShownToken] = ()
        if begin != end and begin in begins and end in begins:
            inside = tokens[begins[begin] : begins[end]]
        if not _spells([token.text for token in inside], text[begin:end], first=not begin):
            inside = ()
        value = math.fsum(token.log_prob for token in inside) if inside else math.nan
        found.append((value, inside[0] if len(inside) == 1 else None))
    return found


def _spells(pieces: Sequence[str], text: str, *, first: bool) -> bool:
    """Whether tokens make up a text, as far as parts of characters can be read."""
    if any(REPLACED in piece or piece.startswith(BYTES) for piece in pieces):
        return True
    joined = "".join(pieces)
    return joined == text or (first and joined.lstrip() == text)


@dataclass
class EndpointWords:
    """The most probable next words of a server, as a function from contexts to lists.

    Args:
        k: most words of a list.
        known: words of the audited texts.
        split: splits a text into words as the audit does.
        counts: `tokens` that began a word, and `pieces` of words among them.
    """

    endpoint: Endpoint
    access: EndpointAccess
    k: int
    known: Collection[str]
    split: Callable[[str], list[str]]
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._words = frozenset(self.known)
        self._sorted = sorted(self._words)

    def __call__(self, contexts: Sequence[Context]) -> list[tuple[str, ...] | None]:
        """The lists; None where the server gives none."""
        prompts = [" ".join(context.words) for context in contexts]
        asked = [prompt for prompt in dict.fromkeys(prompts) if prompt or self.access.empty]
        kind, shown = self.access.kind, self.access.shown
        questions = [Question(prompt, kind=kind, shown=shown) for prompt in asked]
        begun = {
            prompt: self._begun(prompt, reply)
            for prompt, reply in zip(asked, self.endpoint.ask(questions), strict=True)
            if reply is not None
        }
        whole = self._ended([(p, t) for p, tokens in begun.items() for t in tokens if self._cut(t)])
        lists = {
            prompt: dict.fromkeys(whole.get((prompt, t)) or self._word(t) for t in tokens)
            for prompt, tokens in begun.items()
        }
        return [
            tuple(filter(None, lists[prompt])) if prompt in lists else None for prompt in prompts
        ]

    def _begun(self, prompt: str, reply: Reply) -> list[str]:
        """The first k tokens that begin a word, the most probable first."""
        anywhere = not prompt or self.access.kind == "chat"
        tokens = [text for text, _ in reply.likeliest if anywhere or text[:1].isspace()][: self.k]
        self.counts.update(tokens=len(tokens), pieces=sum(map(self._cut, tokens)))
        return tokens

    def _word(self, text: str) -> str:
        return (self.split(text) or [""])[0]

    def _has_ended(self, text: str) -> bool:
        return len(self.split(text + "x")) > 1 or len(self.split(text)) > 1

    def _cut(self, token: str) -> bool:
        """Whether a token is not a known word but begins one; a blank begins all."""
        word = self._word(token)
        if word in self._words or self._has_ended(token):
            return False
        place = bisect_left(self._sorted, word)
        return place < len(self._sorted) and self._sorted[place].startswith(word)

    def _ended(self, pieces: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The word that each piece leads to, of those that the server continues."""
        chat = self.access.kind == "chat"
        texts = {piece: piece[1] for piece in pieces}
        open_ = list(texts)
        for _ in range(LONGEST_PIECES // GOES_ON):
            questions = []
            for prompt, piece in open_:
                blank = " " if chat and prompt and not piece[:1].isspace() else ""
                text = prompt + blank + texts[prompt, piece]
                questions.append(Question(text, kind=self.access.kind, length=GOES_ON, greedy=True))
            replies = zip(open_, self.endpoint.ask(questions), strict=True)
            open_ = []
            for key, reply in replies:
                if reply is not None and reply.text:
                    texts[key] += reply.text
                    open_ += [] if self._has_ended(texts[key]) else [key]
        return {piece: self._word(text) for piece, text in texts.items()}
