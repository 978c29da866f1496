"""The client of a remote model sends each question once and stays within its budgets.

A server (`openai`) and a function (`functions`) are transports. Temporary errors are retried after
a growing pause, or after the pause that a server asks for. Permanent errors fail immediately. A
control question regularly checks that the model behind a server's name is still the same; if not,
the answers since the last check are deleted.

A call is counted before it is sent, so that a killed call counts against the budget. A question
without an answer is counted, and its answer is never guessed. The file of answers contains the
queried texts.
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
from vestige.models.remote.retry import (
    BadReply,
    Failed,
    Limits,
    Refused,
    TooSlow,
    call_with_timeout,
)
from vestige.store import Store

CHECK_EVERY = 500
"""Questions between two control questions."""

Response = tuple[Any, int | None, str | None]
"""A reply, and if reported its token count and the name of its model."""

Q = TypeVar("Q")
A = TypeVar("A")


class Transport(Protocol[Q, A]):
    """How questions reach a model.

    Attributes:
        name: of the model, for messages.
        totals_key: key of the totals in a store.
        has_control: answers count only after a control question, and a model that keeps failing
            is an error; otherwise its questions get no answer.
        permanent: errors of `send` that are not retried.
        counts: statistics of answers since the client last read them.
    """

    name: str
    totals_key: str
    has_control: bool
    permanent: tuple[type[BaseException], ...]
    counts: Counter[str]

    def batches(self, questions: Sequence[Q], together: int) -> list[tuple[Q, ...]]: ...
    def tokens(self, batch: Sequence[Q]) -> tuple[int, int]:
        """Expected and largest number of tokens of a call."""
        ...

    def send(self, batch: tuple[Q, ...]) -> Response:
        """One call."""
        ...

    def answers(self, reply: Any, batch: tuple[Q, ...], last: int) -> Iterable[A | None]:
        """The answers of a reply; `last`: number of queries so far."""
        ...

    def key(self, question: Q) -> str: ...
    def question(self, key: str) -> Q: ...
    def stored(self, answer: A) -> Any: ...
    def restored(self, stored: Any) -> A: ...
    def alike(self, before: A, now: A) -> bool: ...


class Answers(MutableMapping[Q, A]):
    """The answers in a store."""

    def __init__(self, transport: Transport[Q, A], entries: Store) -> None:
        self._transport, self._entries = transport, entries

    def __getitem__(self, question: Q) -> A:
        return self._transport.restored(self._entries[self._transport.key(question)])

    def __setitem__(self, question: Q, answer: A) -> None:
        self._entries[self._transport.key(question)] = self._transport.stored(answer)

    def __delitem__(self, question: Q) -> None:
        del self._entries[self._transport.key(question)]

    def __iter__(self) -> Iterator[Q]:
        return map(self._transport.question, self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Client(Generic[Q, A]):
    """A remote model; each question is sent once.

    Args:
        transport: sends the questions.
        store: keeps answers and totals of all sessions.
        limits: budgets, speed, attempts and pauses.
        answers: keeps the answers instead of the store.
        sleep: waits for a number of seconds.

    Attributes:
        about: facts about the model, by name.
        together: most questions in a call.
        last_error: of the last failed call; it may quote texts.
        budget_spent: whether the budget left a question unsent.
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
        if transport.has_control:
            self._new = Answers(transport, store.part("new/"))
        self.about, self.together = store.part("about/"), limits.at_once
        self._next_call, self._since_check, self._failed_in_a_row = 0.0, math.inf, 0
        self.last_error: BaseException | None = None
        self.budget_spent = False
        self.session: Counter[str] = Counter()
        self.totals: Counter[str] = Counter(store.get(transport.totals_key, {}))
        self._unsaved: dict[Q, A] | None = None

    @property
    def gave_up(self) -> bool:
        """Whether too many calls in a row have failed."""
        return self._failed_in_a_row >= self._limits.give_up_after

    def ask(self, questions: Sequence[Q]) -> list[A | None]:
        """The answer to each question; None if the budget is spent or every attempt failed.

        Raises:
            ModelError: the model accepts no question, was replaced, or keeps failing; earlier
                answers are cached.
        """
        answers: dict[Q, A | None] = {
            question: self._cached(question) for question in dict.fromkeys(questions)
        }
        missing = [question for question, answer in answers.items() if answer is None]
        size = CHECK_EVERY if self.transport.has_control else max(1, len(missing))
        try:
            for begin in range(0, len(missing), size):
                block = missing[begin : begin + size]
                if self._since_check + len(block) > CHECK_EVERY:
                    self.confirm()
                self._since_check += len(block)
                for new_answers in self._answer_batches(
                    self.transport.batches(block, self.together)
                ):
                    answers |= new_answers
        finally:
            self.save()
        newly_answered = sum(answers[question] is not None for question in missing)
        answered = sum(answers[question] is not None for question in questions)
        self.session.update(contexts=len(questions), cached=answered - newly_answered)
        return [answers[question] for question in questions]

    def attempt(self, *questions: Q) -> tuple[A | None, ...]:
        """Answers of one call, without the cache.

        Raises:
            Refused: the model does not accept such a question.
            ModelError: see `ask`; or no attempt succeeded.
        """
        response = self._send(questions)
        if response is None:
            raise self.failure()
        return tuple(self.transport.answers(response[0], questions, 0))

    def set_control(self, question: Q, answer: A) -> None:
        """Use a question and its answer to recognise the model, if there is no control yet."""
        if "control" not in self.about:
            self.about["control"] = self.transport.key(question)
            self.about["controlled"] = self.transport.stored(answer)
        self._since_check = 0

    def confirm(self) -> None:
        """Send the control question; the answers since the last one count only if it succeeds.

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
            discarded = len(self._new)
            if same:
                self._answers.update(self._new)
            self._new.clear()
        if not same:
            raise ModelError(
                f"{self.transport.name} now has another model: {discarded} answers since the "
                "change were discarded",
                remedy=(
                    "Ask its owner which model it is. Run the command again when the first model "
                    "is back, or start again with another `out`."
                ),
            )
        self._since_check = 0

    def failure(self) -> ModelError:
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

    def _cached(self, question: Q) -> A | None:
        answer = self._answers.get(question)
        return self._new.get(question) if answer is None else answer

    def _answer_batches(self, batches: list[tuple[Q, ...]]) -> Iterator[dict[Q, A | None]]:
        """Answers to each batch. The first answer names the model, so its call runs alone."""
        sequential = (
            len(batches) if self._limits.concurrency == 1 else int("model" not in self.about)
        )
        pool = ThreadPoolExecutor(self._limits.concurrency)
        try:
            yield from chain(
                map(self._answer_batch, batches[:sequential]),
                pool.map(self._answer_batch, batches[sequential:]),
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer_batch(self, batch: tuple[Q, ...]) -> dict[Q, A | None]:
        """Answers to the questions of one call, which are stored; empty if it failed."""
        if self.gave_up and self.transport.has_control:
            raise self.failure()
        budget = self._limits.queries
        remaining = len(batch) if budget is None else max(0, budget - self.totals["queries"])
        self.budget_spent |= remaining < len(batch) and not self.gave_up
        sent = () if self.gave_up else batch[:remaining]
        self.session["unasked"] += len(batch) - len(sent)
        if not sent:
            return {}
        try:
            response = self._send(sent)
        except Refused:
            return {}
        if response is None:
            self._count(unanswered=len(sent))
            return {}
        answers: dict[Q, A | None] = {}
        try:
            replies = self.transport.answers(response[0], sent, self.totals["queries"])
            answers.update(zip(sent, replies, strict=True))
        finally:
            with self._lock:
                self._count(**self.transport.counts)
                self.transport.counts.clear()
                self._unsaved = (self._unsaved or {}) | {
                    question: answer for question, answer in answers.items() if answer is not None
                }
        return answers

    def _send(self, batch: tuple[Q, ...]) -> Response | None:
        """The response to one call; None if every attempt failed or the budget is spent."""
        expected, most = self.transport.tokens(batch)
        wait: float | None = None
        for attempt, pause in enumerate(self._limits.pauses()):
            if not self._begin_call(len(batch), most, retry=attempt > 0):
                return None
            self._wait_turn(wait)
            started, counts = time.perf_counter(), {"tokens": expected - most}
            try:
                response: Response = call_with_timeout(
                    self._limits.timeout, self.transport.send, batch
                )
                _, tokens, model = response
                counts["tokens"] = (expected if tokens is None else tokens) - most
                with self._lock:
                    if model is not None and model != self.about.setdefault("model", model):
                        raise BadReply("the answer is of another model")
                self._failed_in_a_row = 0
                return response
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a user's function may raise anything, even SystemExit
                self.last_error = error
                counts |= {"failed_calls": 1, "timeouts": int(isinstance(error, TooSlow))}
                if isinstance(error, self.transport.permanent):
                    raise
                wait = pause
                if isinstance(error, Failed) and error.wait is not None:
                    with self._lock:  # the server would reject other calls as well
                        self._next_call = max(self._next_call, time.monotonic() + error.wait)
                    wait = error.wait
            finally:
                self._count(**counts, seconds=time.perf_counter() - started)
        with self._lock:
            self._failed_in_a_row += 1
        return None

    def _begin_call(self, queries: int, tokens: int, *, retry: bool) -> bool:
        """Whether the budget allows a call; if so, it is counted."""
        cost = {"calls": 1, "queries": queries, "tokens": tokens}
        with self._lock:
            for name, number in cost.items():
                budget = getattr(self._limits, name)
                if budget is not None and self.totals[name] + number > budget:
                    self.budget_spent = True
                    self._failed_in_a_row += retry and not self.transport.has_control
                    return False
            self._count(**cost, retries=int(retry))
            self.save()
        return True

    def _count(self, **numbers: Any) -> None:
        with self._lock:
            self.totals.update(numbers)
            self._unsaved = self._unsaved or {}

    def save(self) -> None:
        """Write totals and new answers in one transaction."""
        with self._lock:
            if self._unsaved is not None:
                with self._store.transaction():
                    self._new.update(self._unsaved)
                    self._store[self.transport.totals_key] = dict(self.totals)
                self._unsaved = None

    def _wait_turn(self, wait: float | None) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next_call)
            rate = self._limits.calls_per_minute
            self._next_call = start if rate is None else start + 60 / rate
        if (seconds := max(start - now, wait or 0.0)) > 0:
            self._sleep(seconds)
