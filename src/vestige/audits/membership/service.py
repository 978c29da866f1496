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
from vestige.audits.membership.costs import server_cost
from vestige.audits.membership.target import Ask
from vestige.audits.membership.user_inputs import UserInputs
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError, ModelError, VestigeError
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_session import opened
from vestige.models.endpoint_words import EndpointWords
from vestige.models.remote_options import RemoteOptions
from vestige.models.service import RetryPolicy, ServiceModel
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
        statistics: of the queries of all sessions, after the first one.
    """

    run: "Session"
    inputs: UserInputs
    policy: QueryPolicy
    options: RemoteOptions
    outputs: CachedOutputs
    statistics: dict[str, Any] = field(default_factory=dict, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def check_budget(self) -> None:
        """Refuse a budget that cannot be enough, before anything is trained or queried.

        Raises:
            DataError: it is too small.
        """
        queries, most = self.inputs.queries, None
        if self.policy.how == "informative":
            # One more: the service is tried with a word that may not be selected later.
            most = int(self.policy.most(queries).sum()) + 1
        else:
            queries = queries.take(self.inputs.chosen(self.policy))
        contexts, _ = self.inputs.contexts(queries)
        if isinstance(self.inputs.target.remote, EndpointAddress):
            self.run.log(server_cost(contexts, self.options, k=self.policy.k, most=most))
            return
        budget, needed = self.options.budget, most or len(set(contexts))
        if budget is not None and budget < needed:
            raise DataError(
                f"`budget` {budget} is too small: this audit needs "
                f"{'up to ' if most else ''}{needed} queries",
                remedy=f"Give `budget` {needed} (more if calls fail), fewer `queries` or `calls`, "
                "or fewer texts.",
            )

    def probe(self) -> None:
        """Query one word, so that an unusable service is refused before long work.

        Raises:
            ModelError: it gives no lists of words, or fails.
        """
        found = self.ranks(self.inputs.queries.take([0]))
        if not found.any() and not self.statistics["refused"]:
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
        # Text that a function prints is no part of the result. Not around each call: a call that
        # was given up would restore, when it ends, what was stdout when it began.
        with (
            self._client() as client,
            self.run.progress("querying the service") as step,
            redirect_stdout(sys.stderr),
        ):
            found = likeliest_ranks(
                client,
                [contexts[n] for n in order],
                [words[n] for n in order],
                at_once=CONTEXTS,
                progress=step,
            )
        if client.statistics.gave_up:
            raise self._failure(type(self._error).__name__) from self._error
        unknown = client.statistics.unknown_words
        if unknown > UNKNOWN * client.statistics.queries * self.policy.k:
            self.run.log(
                f"The reference has none of {unknown:,} words that the service listed. If it lists "
                "pieces of words, join them first. Vestige does so for a server, openai:URL#MODEL."
            )
        ranks = np.zeros(len(order), dtype=np.int32)
        ranks[order] = found
        return ranks

    @contextmanager
    def _client(self) -> Iterator[ServiceModel]:
        """The service as a model; the statistics are those at the end of the block."""
        remote, options = self.inputs.target.remote, self.options
        vocabulary = self.inputs.target.vocabulary
        known = frozenset(map(vocabulary.piece, range(len(vocabulary))))
        if isinstance(remote, EndpointAddress):
            with self._server(remote, known) as client:
                yield client
            return
        assert remote is not None
        with StoredAnswers(self.run.store) as answers:
            client = ServiceModel(
                _reporting_silence(remote, self.run.monitor),
                k=self.policy.k,
                budget=options.budget,
                cache=answers,
                known=known,
                retry=RetryPolicy(attempts=options.attempts, timeout=options.timeout),
            )
            yield client
            self.statistics, self._error = client.statistics.summary(), client.last_error

    @contextmanager
    def _server(self, address: EndpointAddress, known: frozenset[str]) -> Iterator[ServiceModel]:
        path, k = self.outputs.answers(address), self.policy.k
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
            self._error = client.last_error
            if isinstance(self._error, VestigeError):
                raise self._error
            endpoint.confirm()
            total = endpoint.store.statistics()
            self.statistics = client.statistics.summary() | {
                **{name: total[name] for name in ("calls", "tokens", "seconds")},
                **dict.fromkeys(("failures", "retries"), total["failed_calls"]),
                "budget": endpoint.limits.calls,
                "budget_spent": endpoint.budget_spent,
                **{f"listed_{name}": words.counts[name] for name in ("tokens", "pieces")},
            }

    def _failure(self, what: str) -> ModelError:
        queries = self.statistics["queries"]
        return ModelError(
            f"{self.inputs.target.name} keeps failing, by query {queries:,} ({what})",
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
