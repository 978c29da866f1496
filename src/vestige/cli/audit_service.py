"""A Python callable as the target of an audit: asked within its budget, and never twice."""

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige import _validate
from vestige.cli.audit_asking import AuditInputs, Choice
from vestige.cli.terminal import progress, say
from vestige.errors import DataError, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.data.token_queries import TokenQueries
    from vestige.models.answer_cache import AnswerCache
    from vestige.models.service import Ask, QueryAccount, ServiceModel
    from vestige.models.top_k import Answer, Context

ANSWERS = "answers.jsonl"
"""The file in DIR that remembers them."""

SILENT = 60.0
"""Seconds after which a call that has not come back is told of."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How a callable is asked.

    Attributes:
        budget: queries at most, in all sittings; None for any number.
        timeout: seconds after which a call has failed; None: it never has.
        attempts: calls for the same contexts at most.
    """

    budget: int | None
    timeout: float | None
    attempts: int

    def check(self) -> None:
        """Raise ValueError where a value is out of range."""
        if self.timeout is not None:
            _validate.positive(**{"--timeout": self.timeout})
            _validate.finite(**{"--timeout": self.timeout})

    def afford(self, needed: int, *, exact: bool) -> None:
        """Refuse a budget that cannot be enough, before anything is asked.

        Raises:
            DataError: it takes more.
        """
        if self.budget is not None and self.budget < needed:
            raise DataError(
                f"--budget {self.budget} is too small: this audit takes "
                f"{'' if exact else 'up to '}{needed} queries",
                remedy=f"Give --budget {needed} (and some more for calls that fail), ask about "
                "less (--queries, --calls), or give fewer texts.",
            )


class Service:
    """A callable behind `ServiceModel`, with answers that outlive the program.

    Args:
        asking: the words.
        choice: which of them.
        patience: with the callable.
        out: DIR.
        show_secrets: whether an error of the callable, which may quote texts, is shown.
    """

    def __init__(
        self,
        asking: AuditInputs,
        choice: Choice,
        patience: Patience,
        out: Path,
        *,
        show_secrets: bool,
    ) -> None:
        self._asking, self._choice, self._patience = asking, choice, patience
        self._path, self._show_secrets = out / ANSWERS, show_secrets
        self._account: QueryAccount | None = None

    @property
    def account(self) -> dict[str, Any]:
        """What asking came to, in all sittings."""
        return {} if self._account is None else self._account.summary()

    def afford(self, asked: "TokenQueries", *, exact: bool) -> None:
        """See `Patience.afford`; `exact` where these are the words that will be asked."""
        if exact:
            contexts, _ = self._asking.contexts(asked)
            self._patience.afford(len(set(contexts)), exact=True)
        elif self._patience.budget is not None:
            # One more, since the service is tried with a word that may not be asked later.
            self._patience.afford(int(self._choice.most(asked).sum()) + 1, exact=False)

    def probe(self, asked: "TokenQueries") -> None:
        """Ask for one word: a callable that cannot be used is refused before long work.

        Raises:
            ModelError: it gives no lists of words, or fails.
        """
        first = asked.take([0])
        if not self.ranks(first).any() and not self.account["refused"]:
            raise self._gave_up("the first query was not answered")

    def ranks(self, asked: "TokenQueries") -> "NDArray[np.int32]":
        """(w,) ranks up to k + 1; 0 where there was no answer.

        Raises:
            ModelError: the callable's answers are no lists of words, or it keeps failing.
        """
        import numpy as np

        from vestige.models.answer_cache import AnswerCache
        from vestige.models.top_k import likeliest_ranks

        contexts, words = self._asking.contexts(asked)
        # In an order by lot: where a budget ends early, nobody is left out more than others.
        order = list(range(len(words)))
        random.Random(self._choice.seed).shuffle(order)
        with AnswerCache(self._path) as kept, progress("asking the service") as bar:
            if kept.damaged:
                say(f"{self._path}: {kept.damaged} lines are damaged, their words are asked again")
            model, budget = self._asked_model(kept), self._patience.budget
            watched = _Watched(model, kept, budget, bar, len(order))
            # What a callable prints is no part of the result. Not about each call: one that was
            # given up would put back, when it ends, what was stdout when it began.
            with redirect_stdout(sys.stderr):
                found = likeliest_ranks(
                    watched, [contexts[n] for n in order], [words[n] for n in order]
                )
            self._account = watched.account
            if self._account.gave_up:
                error = model.last_error
                raise self._gave_up(
                    f"{type(error).__name__}: {error}"
                    if self._show_secrets
                    else f"{type(error).__name__}, --show-secrets shows the whole of it"
                )
        ranks = np.zeros(len(order), dtype=np.int32)
        ranks[order] = found
        return ranks

    def _asked_model(self, kept: "AnswerCache") -> "ServiceModel":
        from vestige.models.service import Patience as Bearing
        from vestige.models.service import ServiceModel

        target, budget = self._asking.target, self._patience.budget
        if target.ask is None:
            raise TypeError("a service must have a callable, got none")
        left = None if budget is None else max(0, budget - kept.before.queries)
        return ServiceModel(
            kept.counting(_told(target.ask)),
            k=self._choice.k,
            budget=left,
            cache=kept,
            known=frozenset(map(target.vocabulary.piece, range(len(target.vocabulary)))),
            patience=Bearing(attempts=self._patience.attempts, timeout=self._patience.timeout),
        )

    def _gave_up(self, what: str) -> ModelError:
        return ModelError(
            f"{self._asking.target.path} fails again and again, by query "
            f"{self.account['queries']:,} ({what})",
            remedy="Try it by hand, or raise --attempts or --timeout; then give the same command "
            "again: what was answered is kept.",
        )


def _told(ask: "Ask") -> "Ask":
    """The callable, of which is told when it is silent for long."""

    def asked(contexts: "Sequence[Context]") -> "Sequence[Sequence[str] | None]":
        with _told_of():
            return ask(contexts)

    return asked


@contextmanager
def _told_of() -> Iterator[None]:
    line = (
        f"The service has not answered for {SILENT:.0f} s: it is waited for. --timeout bounds a "
        "call; interrupted, the same command goes on where it was"
    )
    timer = threading.Timer(SILENT, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Watched:
    """A `TopK` that tells how far it is and puts the account on record."""

    def __init__(
        self, model: "ServiceModel", kept: "AnswerCache", budget: int | None, bar: Any, total: int
    ) -> None:
        self._model, self.k = model, model.k
        self._kept, self._budget, self._bar = kept, budget, bar
        self._done, self._total = 0, total

    @property
    def account(self) -> "QueryAccount":
        return self._kept.account(self._model.account, budget=self._budget)

    def likeliest(self, contexts: "Sequence[Context]") -> "list[Answer]":
        """The likeliest words after each context, some contexts at a time."""
        answers: list[Answer] = []
        for begin in range(0, len(contexts), 64):
            part = contexts[begin : begin + 64]
            calls = self._model.account.calls
            answers += self._model.likeliest(part)
            self._done += len(part)
            self._bar(self._done, self._total)
            if self._model.account.calls > calls:
                self._kept.note(self.account)
        return answers
