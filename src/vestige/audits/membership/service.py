"""A remote model as the target: within its budget, and Vestige caches all answers."""

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.texts.cached_outputs import CachedOutputs
from vestige.audits.membership.answers import StoredAnswers
from vestige.audits.membership.target import Ask
from vestige.audits.membership.user_inputs import UserInputs
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError, ModelError, VestigeError
from vestige.models.endpoint import Endpoint
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_session import opened
from vestige.models.endpoint_words import EndpointWords
from vestige.models.remote_options import RemoteOptions
from vestige.models.service import QueryStatistics, RetryPolicy, ServiceModel
from vestige.models.top_k import Context, likeliest_ranks
from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.session import Session

CONTEXTS = 64
"""Contexts of one request to the client."""
UNKNOWN = 0.5
"""Share of unknown words in lists above which they may be pieces of words."""
SILENCE = 60.0
"""Seconds after which a call without an answer is reported."""


@dataclass(kw_only=True)
class Service:
    """A function or a server, queried about users' words.

    Attributes:
        run: the session.
        inputs: of the audit.
        policy: which words are queried; its k is the length of the lists.
        options: budgets and speed.
        outputs: a server's answers, cached.
    """

    run: "Session"
    inputs: UserInputs
    policy: QueryPolicy
    options: RemoteOptions
    outputs: CachedOutputs
    _counted: QueryStatistics | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _of_server: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def statistics(self) -> dict[str, Any]:
        """Statistics of the queries of all sessions."""
        return {} if self._counted is None else self._counted.summary() | self._of_server

    def check_budget(self) -> None:
        """Refuse a budget that cannot be enough, before anything is trained or queried.

        Raises:
            DataError: it is too small.
        """
        if self.policy.how == "informative":
            self.afford_most(self.inputs.queries)
        else:
            self.afford(self.inputs.queries.take(self.inputs.chosen(self.policy)))

    def afford(self, queries: TokenQueries) -> None:
        """Refuse a budget that is too small for these words.

        Raises:
            DataError: it is.
        """
        contexts, _ = self.inputs.contexts(queries)
        self._afford(contexts, len(set(contexts)), exact=True)

    def afford_most(self, queries: TokenQueries) -> None:
        """The same before it is known which of the words are selected."""
        # One more: the service is tried with a word that may not be selected later.
        most = int(self.policy.most(queries).sum()) + 1
        contexts, _ = self.inputs.contexts(queries)
        self._afford(contexts, most, exact=False)

    def probe(self, queries: TokenQueries) -> None:
        """Query one word, so that an unusable service is refused before long work.

        Raises:
            ModelError: it gives no lists of words, or fails.
        """
        if not self.ranks(queries.take([0])).any() and not self.statistics["refused"]:
            why = f": {type(self._error).__name__}" if self._error else ""
            raise self._failure(f"no answer to the first query{why}")

    def ranks(self, queries: TokenQueries) -> NDArray[np.int32]:
        """(w,) ranks up to k + 1; 0 if there is no answer.

        Raises:
            ModelError: the answers are no lists of words, or the service keeps failing.
        """
        contexts, words = self.inputs.contexts(queries)
        # In random order: if a budget ends early, it leaves out no user more than another.
        order = list(range(len(words)))
        random.Random(self.policy.seed).shuffle(order)
        with self._client() as client:
            # Text that a function prints is no part of the result. Not around each call: a call
            # that was given up would restore, when it ends, what was stdout when it began.
            with self.run.progress("querying the service") as step, redirect_stdout(sys.stderr):
                found = likeliest_ranks(
                    client,
                    [contexts[n] for n in order],
                    [words[n] for n in order],
                    at_once=CONTEXTS,
                    progress=step,
                )
            self._counted, self._error = client.statistics, client.last_error
            if self._address is not None and isinstance(self._error, VestigeError):
                raise self._error
        if self._counted.gave_up:
            raise self._failure(type(self._error).__name__) from self._error
        self._report_unknown_words(self._counted)
        ranks = np.zeros(len(order), dtype=np.int32)
        ranks[order] = found
        return ranks

    @property
    def _address(self) -> EndpointAddress | None:
        remote = self.inputs.target.remote
        return remote if isinstance(remote, EndpointAddress) else None

    def _afford(self, contexts: Sequence[Context], most: int, *, exact: bool) -> None:
        from vestige.audits.membership.costs import server_cost

        if self._address is not None:
            asked = None if exact else most
            line = server_cost(contexts, self.options, k=self.policy.k or 0, most=asked)
            self.run.log(line)
        elif self.options.budget is not None and self.options.budget < most:
            raise DataError(
                f"`budget` {self.options.budget} is too small: this audit needs "
                f"{'' if exact else 'up to '}{most} queries",
                remedy=f"Give `budget` {most} (more if calls fail), fewer `queries` or `calls`, "
                "or fewer texts.",
            )

    @contextmanager
    def _client(self) -> Iterator[ServiceModel]:
        remote = self.inputs.target.remote
        if remote is None:
            raise TypeError("the target must be remote, got a local model")
        if isinstance(remote, EndpointAddress):
            with self._server(remote) as client:
                yield client
            return
        options = self.options
        with StoredAnswers(self.run.store) as answers:
            yield ServiceModel(
                _reporting_silence(remote, self.run.monitor),
                k=self.policy.k,
                budget=options.budget,
                cache=answers,
                known=self.inputs.known_words,
                retry=RetryPolicy(attempts=options.attempts, timeout=options.timeout),
            )

    @contextmanager
    def _server(self, address: EndpointAddress) -> Iterator[ServiceModel]:
        path = self.outputs.answers(address)
        known, k = self.inputs.known_words, self.policy.k
        with opened(address, path, self.options, self.run.monitor) as (endpoint, access):
            if k > access.shown:
                raise DataError(
                    f"`top_k` {k} is more than the {access.shown} tokens that the server shows",
                    remedy=f"Give `top_k` {access.shown} or less.",
                )
            words = EndpointWords(endpoint, access, k, known, self.inputs.split)
            # The endpoint caches, retries and counts by itself.
            retry = RetryPolicy(at_once=CONTEXTS, attempts=1, give_up_after=1)
            client = ServiceModel(words, k=k, known=known, retry=retry)
            yield client
            if not isinstance(client.last_error, VestigeError):
                endpoint.confirm()
            self._of_server = _spent(endpoint, words)

    def _report_unknown_words(self, counted: QueryStatistics) -> None:
        if counted.unknown_words > UNKNOWN * counted.queries * self.policy.k:
            self.run.log(
                f"The reference has none of {counted.unknown_words:,} words that the service "
                "listed. If it lists pieces of words, join them first. Vestige does so for a "
                "server, openai:URL#MODEL."
            )

    def _failure(self, what: str) -> ModelError:
        return ModelError(
            f"{self.inputs.target.name} keeps failing, by query {self.statistics['queries']:,} "
            f"({what})",
            remedy="Try it by hand, or raise `attempts` or `timeout`. Then repeat the command: "
            "Vestige caches answers.",
        )


def _reporting_silence(ask: Ask, monitor: Monitor) -> Ask:
    """The function, with a line for the user if a call takes long."""
    line = (
        f"The service has not answered for {SILENCE:.0f} s. Vestige waits; --timeout limits a call."
    )

    def reported(contexts: Sequence[Context]) -> Any:
        timer = threading.Timer(SILENCE, monitor.log, [line])
        timer.daemon = True
        timer.start()
        try:
            return ask(contexts)
        finally:
            timer.cancel()

    return reported


def _spent(endpoint: Endpoint, words: EndpointWords) -> dict[str, Any]:
    """Statistics of all sessions under the names that those of a function have, and more."""
    total = endpoint.store.statistics()
    return {
        "calls": total["calls"],
        "failures": total["failed_calls"],
        "retries": total["failed_calls"],
        "tokens": total["tokens"],
        "seconds": total["seconds"],
        "budget": endpoint.limits.calls,
        "budget_spent": endpoint.budget_spent,
        "listed_tokens": words.counts["tokens"],
        "listed_pieces": words.counts["pieces"],
    }
