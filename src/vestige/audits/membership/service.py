"""A remote model as the target: within its budget, and Vestige caches all answers.

A killed audit resumes and pays for nothing twice.
"""

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.audits.membership.user_inputs import Ask, UserInputs
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError, ModelError, VestigeError
from vestige.models.remote.client import CHECK_EVERY
from vestige.models.remote.functions import ServiceModel
from vestige.models.remote.openai import Question
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.remote.probe import MOST_CALLS, open_endpoint
from vestige.models.remote.retry import RetryPolicy
from vestige.models.remote.tokens import MOST_PIECES, PIECES_PER_CALL, EndpointWords
from vestige.models.token_statistics import CachedOutputs
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
ENDINGS = MOST_PIECES // PIECES_PER_CALL
"""Most calls to a server for a word that is cut into pieces."""


@dataclass(kw_only=True)
class Service:
    """A function or a server, queried about users' words.

    Attributes:
        run: the session.
        inputs: of the audit.
        options: budgets and speed.
        outputs: a server's answers, cached.
        statistics: of the queries of all sessions, after the first one.
    """

    run: "Session"
    inputs: UserInputs
    options: RemoteOptions
    outputs: CachedOutputs
    statistics: dict[str, Any] = field(default_factory=dict, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def check_budget(self) -> None:
        """Refuse a budget that cannot be enough, before anything is trained or queried."""
        queries, most = self.inputs.queries, None
        if self.inputs.policy.how == "informative":
            # One more: the service is tried with a word that may not be selected later.
            most = int(self.inputs.policy.most(queries).sum()) + 1
        else:
            queries = queries.take(self.inputs.chosen())
        contexts, _ = self.inputs.contexts(queries)
        if isinstance(self.inputs.target.remote, EndpointAddress):
            self.run.log(server_cost(contexts, self.options, k=self.inputs.policy.k, most=most))
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
        """Query one word, so that an unusable service is refused before long work."""
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
        random.Random(self.inputs.policy.seed).shuffle(order)
        # Text that a function prints is no part of the result. Not around each call: a call that
        # was given up would restore, when it ends, what was stdout when it began.
        with (
            self._client() as client,
            self.run.progress("querying the service") as step,
            redirect_stdout(sys.stderr),
        ):
            asked = [contexts[n] for n in order], [words[n] for n in order]
            found = likeliest_ranks(client, *asked, at_once=CONTEXTS, progress=step)
        if client.statistics.gave_up:
            raise self._failure(type(self._error).__name__) from self._error
        unknown = client.statistics.unknown_words
        if unknown > UNKNOWN * client.statistics.queries * self.inputs.policy.k:
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
        client = ServiceModel(
            _reporting_silence(remote, self.run.monitor),
            k=self.inputs.policy.k,
            budget=options.budget,
            store=self.run.store,
            known=known,
            retry=RetryPolicy(attempts=options.attempts, timeout=options.timeout),
        )
        yield client
        self.statistics, self._error = client.statistics.summary(), client.last_error

    @contextmanager
    def _server(self, address: EndpointAddress, known: frozenset[str]) -> Iterator[ServiceModel]:
        path, k = self.outputs.answers(address), self.inputs.policy.k
        with open_endpoint(address, path, self.options, self.run.monitor) as (endpoint, access):
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
            total = endpoint.totals
            self.statistics = client.statistics.summary() | {
                **{name: total[name] for name in ("calls", "tokens", "seconds")},
                **dict.fromkeys(("failures", "retries"), total["failed_calls"]),
                "budget": self.options.budget,
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


def server_cost(
    contexts: Sequence[Context], options: RemoteOptions, *, k: int, most: int | None = None
) -> str:
    """A line about calls and tokens; DataError if a budget is too small in any case.

    Args:
        contexts: that will be queried.
        options: with the budgets.
        k: length of the lists; each word may be cut into pieces, which Vestige completes.
        most: how many of the contexts will be queried, if it is not known yet which.
    """
    prompts = {" ".join(context.words) for context in contexts}
    queried = len(prompts) if most is None else min(most, len(prompts))
    checks = MOST_CALLS + 2 + queried // CHECK_EVERY
    each = sum(Question(prompt).tokens for prompt in prompts) / max(len(prompts), 1)
    calls, tokens = queried + checks, round(each * queried) + 20 * checks
    ends = queried * k * ENDINGS
    most_tokens = tokens + round(ends * (each + MOST_PIECES))
    for name, needed in (("budget", calls), ("token_budget", tokens)):
        allowed = getattr(options, name)
        if allowed is not None and allowed < needed:
            raise DataError(
                f"`{name}` {allowed} is too small: this audit needs {needed} if no word is cut "
                "into pieces",
                remedy=f"Give `{name}` {needed} (more for pieces and calls that fail), fewer "
                "`queries` or `calls`, or fewer texts.",
            )
    return (
        f"Plan: {queried:,} prompts, {calls:,} calls and about {tokens:,} tokens if each token is "
        f"a word; at most {calls + ends:,} calls and about {most_tokens:,} tokens if every "
        f"listed word has {MOST_PIECES} pieces. Fewer calls if the server takes several prompts "
        "at once; more if calls fail. Cached answers cost nothing."
    )
