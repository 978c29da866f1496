"""Words from a server that shows tokens: a word that it cuts into pieces is asked to its end.

A server's tokens are texts such as " neigh" and "bour". After a text that ends with a word, a token
that begins with a blank begins the next word, and one that does not goes on with the last one and
answers another question: it is left out. A token that is a word of the asker's stands for that. One
that begins words of the asker's is a piece: the server is asked to go on after it by its likeliest
tokens until the word ends, a call for each piece. Everything else stands for itself and keeps its
place.

Differs from a word's own probability: a list is in the order of the first pieces' probabilities,
and a piece leads to one word, its likeliest.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from vestige.models.endpoint import Endpoint
from vestige.models.endpoint_probe import EndpointAccess
from vestige.models.endpoint_wire import Question, Reply
from vestige.models.top_k import Context

GOES_ON = 8
"""Tokens that are asked for to end a word."""
LONGEST_PIECES = 24
"""Tokens of a word at most."""


@dataclass
class EndpointWords:
    """The likeliest next words of a server, as a function from contexts to lists.

    Args:
        endpoint: what is asked.
        access: what it can do.
        k: words listed at most.
        known: the asker's words.
        split: cuts a text into words, as the asker does.

    Attributes:
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
        replies = dict(zip(asked, self.endpoint.ask(questions), strict=True))
        begun = {
            prompt: self._begun(prompt, reply)
            for prompt, reply in replies.items()
            if reply is not None
        }
        ends = self._ended([(p, t) for p, tokens in begun.items() for t in tokens if self._cut(t)])
        lists = {
            prompt: dict.fromkeys(ends.get((prompt, t)) or self._word(t) for t in tokens)
            for prompt, tokens in begun.items()
        }
        return [
            tuple(filter(None, lists[prompt])) if prompt in lists else None for prompt in prompts
        ]

    def _begun(self, prompt: str, reply: Reply) -> list[str]:
        """The first k tokens that begin a word, the likeliest first."""
        anywhere = not prompt or self.access.kind == "chat"
        likeliest = reply.tokens[-1].likeliest if reply.tokens else ()
        tokens = [text for text, _ in likeliest if anywhere or text[:1].isspace()]
        tokens = tokens[: self.k]
        self.counts.update(tokens=len(tokens), pieces=sum(map(self._cut, tokens)))
        return tokens

    def _word(self, text: str) -> str:
        return (self.split(text) or [""])[0]

    def _has_ended(self, text: str) -> bool:
        return len(self.split(text + "x")) > 1 or len(self.split(text)) > 1

    def _cut(self, token: str) -> bool:
        """Whether a token is no word, and begins one of the asker's; a blank begins all."""
        word = self._word(token)
        if word in self._words or self._has_ended(token):
            return False
        place = bisect_left(self._sorted, word)
        return place < len(self._sorted) and self._sorted[place].startswith(word)

    def _ended(self, pieces: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The word that each piece leads to, of those after which the server goes on."""
        chat = self.access.kind == "chat"
        texts = {piece: piece[1] for piece in pieces}
        going = list(texts)
        for _ in range(LONGEST_PIECES // GOES_ON):
            questions = [
                Question(
                    prompt + (" " if chat and prompt and not text[:1].isspace() else "")
                    + texts[prompt, text],
                    kind=self.access.kind, length=GOES_ON, greedy=True,
                )
                for prompt, text in going
            ]  # fmt: skip
            written = zip(going, self.endpoint.ask(questions), strict=True)
            going = []
            for piece, reply in written:
                if reply is not None and reply.text:
                    texts[piece] += reply.text
                    going += [] if self._has_ended(texts[piece]) else [piece]
        return {piece: self._word(text) for piece, text in texts.items()}
