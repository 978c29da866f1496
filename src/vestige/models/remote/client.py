"""The client of a remote model: questions are sent once and within a budget, whatever goes wrong.

A server (`openai`) and a function (`functions`) are transports. What fails for a while is tried
again after a pause that grows, or that a server asks for. Permanent errors fail immediately. A
control question checks now and then that the model behind a server's name is the same; otherwise
the answers since the last check are deleted.

A call is counted before it is sent, so that a killed one counts against the budget. What has no
answer is counted, and never guessed. The file of answers holds the queried texts.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from vestige.errors import ModelError
from vestige.models.remote.retry import BadReply, Failed, Limits, Refused, TooSlow, within
from vestige.store import Store

CHECK_EVERY = 500
"""Questions between two control questions."""

Sent = tuple[Any, int | None, str | None]
"""A reply, its tokens and the name of its model, as far as they are reported."""

Q = TypeVar("Q")
A = TypeVar("A")


class Transport(Protocol[Q, A]):
    """How questions reach a model.

    Attributes:
        name: of the model, for messages.
        account: name of the totals in a store.
        controlled: answers count after a control question, and a model that keeps failing is an
            error; otherwise they are left out.
        permanent: errors of `send` after which no attempt can succeed; all others are retried.
        counts: observations of answers since the client last looked.
    """

    name: str
    account: str
    controlled: bool
    permanent: tuple[type[BaseException], ...]
    counts: Counter[str]

    def batches(self, questions: Sequence[Q], together: int) -> list[tuple[Q, ...]]: ...
    def tokens(self, batch: Sequence[Q]) -> tuple[int, int]:
        """Expected and largest number of tokens of a call."""
        ...

    def send(self, batch: tuple[Q, ...]) -> Sent:
        """One call."""
        ...

    def answers(self, reply: Any, batch: tuple[Q, ...], last: int) -> Iterable[A | None]:
        """The answers of a reply; `last`: number of the last question so far."""
        ...

    def key(self, question: Q) -> str: ...
    def question(self, key: str) -> Q: ...
    def stored(self, answer: A) -> Any: ...
    def restored(self, stored: Any) -> A: ...
    def alike(self, before: A, now: A) -> bool: ...


class Answers(MutableMapping[Q, A]):
    """The answers in a part of a store."""

    def __init__(self, transport: Transport[Q, A], part: Store) -> None:
        self._transport, self._part = transport, part

    def __getitem__(self, question: Q) -> A:
        return self._transport.restored(self._part[self._transport.key(question)])

    def __setitem__(self, question: Q, answer: A) -> None:
        self._part[self._transport.key(question)] = self._transport.stored(answer)

    def __delitem__(self, question: Q) -> None:
        del self._part[self._transport.key(question)]

    def __iter__(self) -> Iterator[Q]:
        return map(self._transport.question, self._part)

    def __len__(self) -> int:
        return len(self._part)


class Client(Generic[Q, A]):
    """A remote model that is asked questions, each once.

    Args:
        transport: sends them.
        store: of answers and calls of all sessions.
        limits: budgets, speed, attempts and pauses.
        answers: where answers go instead of the store.
        sleep: waits so many seconds.

    Attributes:
        about: what is noted about the model, by name.
        together: questions in a call at most.
        last_error: of the last failed call; it may quote texts.
        budget_spent: whether a question was left because of the budget.
        session: contexts requested, cached and unasked in this session.
        totals: calls, queries, tokens, seconds and more of all sessions.
    """

    def __init__(
        self,
        transport: Transport[Q, A],
        store: Store,
        limits: Limits,
        *,
        answers: MutableMapping[Q, A] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.transport, self._store, self._limits = transport, store, limits
        self._sleep, self._lock = sleep, threading.RLock()
        self._answers = Answers(transport, store.part("answer/")) if answers is None else answers
        self._new = self._answers
        if transport.controlled:
            self._new = Answers(transport, store.part("new/"))
        self.about, self.together = store.part("about/"), limits.at_once
        self._next_call, self._since_check, self._failed_in_a_row = 0.0, math.inf, 0
        self.last_error: BaseException | None = None
        self.budget_spent = False
        self.session: Counter[str] = Counter()
        self.totals: Counter[str] = Counter(store.get(transport.account, {}))
        self._unsaved: dict[Q, A] | None = None

    @property
    def gave_up(self) -> bool:
        """Whether too many calls in a row have failed."""
        return self._failed_in_a_row >= self._limits.give_up_after

    def ask(self, questions: Sequence[Q]) -> list[A | None]:
        """The answer to each question; None if the budget is spent or every attempt failed.

        Raises:
            ModelError: the model takes no question, is another one than before, or keeps failing;
                its answers are cached.
        """
        found: dict[Q, A | None] = {one: self._known(one) for one in dict.fromkeys(questions)}
        missing = [question for question, answer in found.items() if answer is None]
        size = CHECK_EVERY if self.transport.controlled else max(1, len(missing))
        try:
            for begin in range(0, len(missing), size):
                part = missing[begin : begin + size]
                if self._since_check + len(part) > CHECK_EVERY:
                    self.confirm()
                self._since_check += len(part)
                for answers in self._each(self.transport.batches(part, self.together)):
                    found |= answers
        finally:
            self.save()
        fresh = sum(found[question] is not None for question in missing)
        answered = sum(found[question] is not None for question in questions)
        self.session.update(contexts=len(questions), cached=answered - fresh)
        return [found[question] for question in questions]

    def attempt(self, *questions: Q) -> tuple[A | None, ...]:
        """Answers of one call, neither looked up nor stored.

        Raises:
            Refused: the model does not accept such a question.
            ModelError: see `ask`; or no attempt succeeded.
        """
        sent = self._tried(questions)
        if sent is None:
            raise self.failed()
        return tuple(self.transport.answers(sent[0], questions, 0))

    def control(self, question: Q, answer: A) -> None:
        """Recognise the model by a question and its answer, unless there is one already."""
        if "control" not in self.about:
            self.about["control"] = self.transport.key(question)
            self.about["controlled"] = self.transport.stored(answer)
        self._since_check = 0

    def confirm(self) -> None:
        """Ask the control question: answers since the last one count only now.

        Raises:
            ModelError: another model answers.
        """
        question, before = self.about.get("control"), self.about.get("controlled")
        if question is None or before is None:
            return
        (now,) = self.attempt(self.transport.question(question))
        same = now is not None and self.transport.alike(self.transport.restored(before), now)
        self.save()
        with self._store.transaction():
            number = len(self._new)
            if same:
                self._answers.update(self._new)
            self._new.clear()
        if not same:
            raise ModelError(
                f"{self.transport.name} now has another model: {number} answers since the change "
                "were discarded",
                remedy=(
                    "Ask its owner which model it is. Run the command again when the first model "
                    "is back, or start again with another `out`."
                ),
            )
        self._since_check = 0

    def failed(self) -> ModelError:
        """The error of a model that keeps failing."""
        if isinstance(self.last_error, ModelError):
            return self.last_error
        why = "the budget is used up" if self.budget_spent else self.last_error
        return ModelError(
            f"{self.transport.name} returns no answer: {why}",
            remedy=(
                "Test the server, or raise `attempts`, `timeout` or the budget. Rerun the "
                "command: Vestige caches answers."
            ),
        )

    def _known(self, question: Q) -> A | None:
        answer = self._answers.get(question)
        return self._new.get(question) if answer is None else answer

    def _each(self, batches: list[tuple[Q, ...]]) -> Iterator[dict[Q, A | None]]:
        """Answers to each batch; the first answer names the model, so it is awaited alone."""
        alone = len(batches) if self._limits.concurrency == 1 else int("model" not in self.about)
        pool = ThreadPoolExecutor(self._limits.concurrency)
        try:
            yield from chain(
                map(self._answered, batches[:alone]), pool.map(self._answered, batches[alone:])
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _answered(self, batch: tuple[Q, ...]) -> dict[Q, A | None]:
        """Answers to questions of one call, stored; none if it failed."""
        if self.gave_up and self.transport.controlled:
            raise self.failed()
        most = self._limits.queries
        left = len(batch) if most is None else max(0, most - self.totals["queries"])
        self.budget_spent |= left < len(batch) and not self.gave_up
        asked = () if self.gave_up else batch[:left]
        self.session["unasked"] += len(batch) - len(asked)
        if not asked:
            return {}
        try:
            sent = self._tried(asked)
        except Refused:
            return {}
        if sent is None:
            self._spend(unanswered=len(asked))
            return {}
        found: dict[Q, A | None] = {}
        try:
            answers = self.transport.answers(sent[0], asked, self.totals["queries"])
            found.update(zip(asked, answers, strict=True))
        finally:
            with self._lock:
                self._spend(**self.transport.counts)
                self.transport.counts.clear()
                self._unsaved = (self._unsaved or {}) | {
                    question: one for question, one in found.items() if one is not None
                }
        return found

    def _tried(self, batch: tuple[Q, ...]) -> Sent | None:
        """What one call gave; None if every attempt failed or the budget is spent."""
        expected, most = self.transport.tokens(batch)
        wait: float | None = None
        for number, pause in enumerate(self._limits.pauses()):
            if not self._begun(len(batch), most, retry=number > 0):
                return None
            self._pace(wait)
            began, spent = time.perf_counter(), {"tokens": expected - most}
            try:
                sent: Sent = within(self._limits.timeout, self.transport.send, batch)
                _, tokens, model = sent
                spent["tokens"] = (expected if tokens is None else tokens) - most
                with self._lock:
                    if model is not None and model != self.about.setdefault("model", model):
                        raise BadReply("the answer is of another model")
                self._failed_in_a_row = 0
                return sent
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a user's function may raise anything, exits too
                self.last_error = error
                spent |= {"failed_calls": 1, "timeouts": int(isinstance(error, TooSlow))}
                if isinstance(error, self.transport.permanent):
                    raise
                wait = pause
                if isinstance(error, Failed) and error.wait is not None:
                    with self._lock:  # other calls would be rejected, too
                        self._next_call = max(self._next_call, time.monotonic() + error.wait)
                    wait = error.wait
            finally:
                self._spend(**spent, seconds=time.perf_counter() - began)
        with self._lock:
            self._failed_in_a_row += 1
        return None

    def _begun(self, queries: int, tokens: int, *, retry: bool) -> bool:
        """Whether the budget allows a call, which is then counted."""
        wanted = {"calls": 1, "queries": queries, "tokens": tokens}
        with self._lock:
            for name, number in wanted.items():
                budget = getattr(self._limits, name)
                if budget is not None and self.totals[name] + number > budget:
                    self.budget_spent = True
                    self._failed_in_a_row += retry and not self.transport.controlled
                    return False
            self._spend(**wanted, retries=int(retry))
            self.save()
        return True

    def _spend(self, **numbers: Any) -> None:
        with self._lock:
            self.totals.update(numbers)
            self._unsaved = self._unsaved or {}

    def save(self) -> None:
        """Write the totals and the answers since the last call, together."""
        with self._lock:
            if self._unsaved is not None:
                with self._store.transaction():
                    self._new.update(self._unsaved)
                    self._store[self.transport.account] = dict(self.totals)
                self._unsaved = None

    def _pace(self, wait: float | None) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next_call)
            rate = self._limits.calls_per_minute
            self._next_call = at if rate is None else at + 60 / rate
        if (seconds := max(at - now, wait or 0.0)) > 0:
            self._sleep(seconds)
