"""What a server shows of texts: log-probabilities of tokens, and the most probable next words.

A server echoes a prompt with log-probabilities: one call per text.

A server splits texts with its own tokenizer. If a token of our tokenizer begins and ends where
tokens of the server do, its log-probability is the sum of theirs; otherwise it is unknown.

Words are joined from tokens such as " neigh" and "bour". After a text that ends with a word, a
token that begins with a blank begins the next word; any other token continues the last word and is
ignored. A token that is a known word stands for it. A token that only begins known words is a
piece: the server continues it with its most probable tokens until the word ends, which takes one
call per piece. Every other token stands for itself and keeps its rank. So a list is ordered by the
probabilities of first pieces, and each piece leads to one word, its most probable.
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
"""Texts of tokens that are part of a character."""
_SEARCHED = 16
"""Characters in which the next readable token is searched."""
PIECES_PER_CALL = 8
"""Tokens per call that continues a word."""
MOST_PIECES = 24
"""Most tokens of a word."""


def echo_tokens(
    endpoint: Endpoint, access: EndpointAccess, texts: Sequence[str]
) -> list[tuple[ShownToken, ...] | None]:
    """The tokens of each text, as the server splits it; None if it does not answer."""
    sent = [text for text in texts if text]
    answers = endpoint.ask([Question(text, shown=access.shown, echo=True) for text in sent])
    replies = {"": Reply("")} | dict(zip(sent, answers, strict=True))
    return [_prompt_tokens(text, replies[text], access) for text in texts]


def _prompt_tokens(
    text: str, reply: Reply | None, access: EndpointAccess
) -> tuple[ShownToken, ...] | None:
    """The tokens of the prompt, each with the most probable tokens at its position."""
    if reply is None:
        return None
    tokens = reply.tokens
    if access.echo == "right":  # the last token was generated
        return tokens[:-1] if reply.text != text else tokens
    shown = ((), *(token.likeliest for token in tokens))
    return tuple(
        ShownToken(token.text, dict(top).get(token.text, math.nan), top)
        for token, top in zip(tokens, shown, strict=False)
    )


def token_ends(text: str, vocabulary: SubwordVocabulary) -> list[int]:
    """End of each token of our tokenizer in a text, in characters."""
    encoding = vocabulary.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    # Offsets may omit a blank: a token begins where the previous one ends.
    return list(accumulate((end for _, end in encoding.offsets), max))


def token_starts(text: str, tokens: Sequence[ShownToken]) -> dict[int, int]:
    """Index of the server's token that begins at a character; the end of the text has len(tokens).

    Of consecutive tokens that are parts of characters, only the first has a position.
    """
    starts, position, unreadable = {}, 0, False
    for index, token in enumerate(tokens):
        piece = token.text.lstrip() if not index and not text[:1].isspace() else token.text
        readable = REPLACED not in piece and piece
        start = position
        if readable and unreadable:
            start = text.find(piece, position, position + _SEARCHED + len(piece))
        if not readable or start < 0 or not text.startswith(piece, start):
            if not unreadable:  # the previous token ends here
                starts[position], unreadable = index, True
            continue
        starts[start], position, unreadable = index, start + len(piece), False
    if unreadable or position == len(text):
        starts[len(text)] = len(tokens)
    return starts


def align_tokens(
    text: str, tokens: Sequence[ShownToken], cuts: Sequence[int]
) -> list[tuple[float, ShownToken | None]]:
    """For each of our tokens, which end at `cuts`: log-probability and the server's single token.

    NaN and None if the server's tokens do not spell ours: some servers show no text for the marks
    of a chat template, or omit them.
    """
    starts = token_starts(text, tokens)
    result: list[tuple[float, ShownToken | None]] = []
    for begin, end in pairwise([0, *cuts]):
        inside: Sequence[ShownToken] = ()
        if begin != end and begin in starts and end in starts:
            inside = tokens[starts[begin] : starts[end]]
        if not _spells([token.text for token in inside], text[begin:end], first=not begin):
            inside = ()
        log_prob = math.fsum(token.log_prob for token in inside) if inside else math.nan
        result.append((log_prob, inside[0] if len(inside) == 1 else None))
    return result


def _spells(pieces: Sequence[str], text: str, *, first: bool) -> bool:
    """Whether tokens make up a text; parts of characters match anything."""
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
        counts: `tokens` that began a word, and how many of them were `pieces`.
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
        sent = [prompt for prompt in dict.fromkeys(prompts) if prompt or self.access.empty]
        kind, shown = self.access.kind, self.access.shown
        questions = [Question(prompt, kind=kind, shown=shown) for prompt in sent]
        first_tokens = {
            prompt: self._first_tokens(prompt, reply)
            for prompt, reply in zip(sent, self.endpoint.ask(questions), strict=True)
            if reply is not None
        }
        completed = self._complete(
            [(p, t) for p, tokens in first_tokens.items() for t in tokens if self._is_piece(t)]
        )
        lists = {
            prompt: dict.fromkeys(completed.get((prompt, t)) or self._first_word(t) for t in tokens)
            for prompt, tokens in first_tokens.items()
        }
        return [
            tuple(filter(None, lists[prompt])) if prompt in lists else None for prompt in prompts
        ]

    def _first_tokens(self, prompt: str, reply: Reply) -> list[str]:
        """The first k tokens that begin a word, the most probable first."""
        any_token = not prompt or self.access.kind == "chat"
        first = [text for text, _ in reply.likeliest if any_token or text[:1].isspace()]
        tokens = first[: self.k]
        self.counts.update(tokens=len(tokens), pieces=sum(map(self._is_piece, tokens)))
        return tokens

    def _first_word(self, text: str) -> str:
        return (self.split(text) or [""])[0]

    def _has_ended(self, text: str) -> bool:
        return len(self.split(text + "x")) > 1 or len(self.split(text)) > 1

    def _is_piece(self, token: str) -> bool:
        """Whether a token is not a known word but begins one; a blank begins all."""
        word = self._first_word(token)
        if word in self._words or self._has_ended(token):
            return False
        index = bisect_left(self._sorted, word)
        return index < len(self._sorted) and self._sorted[index].startswith(word)

    def _complete(self, pieces: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The word of each piece, as the server completes it."""
        chat = self.access.kind == "chat"
        texts = {piece: piece[1] for piece in pieces}
        unfinished = list(texts)
        for _ in range(MOST_PIECES // PIECES_PER_CALL):
            questions = []
            for prompt, piece in unfinished:
                blank = " " if chat and prompt and not piece[:1].isspace() else ""
                text = prompt + blank + texts[prompt, piece]
                questions.append(
                    Question(text, kind=self.access.kind, length=PIECES_PER_CALL, greedy=True)
                )
            replies = zip(unfinished, self.endpoint.ask(questions), strict=True)
            unfinished = []
            for key, reply in replies:
                if reply is not None and reply.text:
                    texts[key] += reply.text
                    unfinished += [] if self._has_ended(texts[key]) else [key]
        return {piece: self._first_word(text) for piece, text in texts.items()}
