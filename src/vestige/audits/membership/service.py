"""A remote model as the target, queried within a budget.

Vestige caches all answers: a killed audit resumes and sends no query twice.
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

BATCH_SIZE = 64
"""Contexts of one request to the client."""
MAX_UNKNOWN_SHARE = 0.5
"""Share of unknown words in the lists above which the model may list pieces of words."""
SLOW_CALL = 60.0
"""Seconds after which a call without an answer is reported."""
CALLS_PER_WORD = MOST_PIECES // PIECES_PER_CALL
"""Most calls to a server to complete a listed word from its pieces."""


@dataclass(kw_only=True)
class Service:
    """A function or a server, queried about users' words.

    Attributes:
        run: the session.
        inputs: of the audit.
        options: budgets and speed.
        outputs: the cached answers of a server.
        statistics: of all queries so far, those of earlier sessions included.
    """

    run: "Session"
    inputs: UserInputs
    options: RemoteOptions
    outputs: CachedOutputs
    statistics: dict[str, Any] = field(default_factory=dict, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def check_budget(self) -> None:
        """Raise DataError for a budget that is too small, before anything is trained or queried."""
        queries, max_queries = self.inputs.queries, None
        if self.inputs.policy.select == "informative":
            # One more: the service is tried with a word that may not be selected later.
            max_queries = int(self.inputs.policy.max_words(queries).sum()) + 1
        else:
            queries = queries.take(self.inputs.selected())
        contexts, _ = self.inputs.contexts(queries)
        if isinstance(self.inputs.target.remote, EndpointAddress):
            k = self.inputs.policy.k
            self.run.log(server_cost(contexts, self.options, k=k, max_queries=max_queries))
            return
        budget, needed = self.options.budget, max_queries or len(set(contexts))
        if budget is not None and budget < needed:
            raise DataError(
                f"`budget` {budget} is too small: this audit needs "
                f"{'up to ' if max_queries else ''}{needed} queries",
                remedy=f"Give `budget` {needed} (more if calls fail), fewer `queries` or `calls`, "
                "or fewer texts.",
            )

    def probe(self) -> None:
        """Query one word, so that an unusable service is refused before long work."""
        ranks = self.ranks(self.inputs.queries.take([0]))
        if not ranks.any() and not self.statistics["refused"]:
            cause = f": {type(self._error).__name__}" if self._error else ""
            raise self._failure(f"no answer to the first query{cause}")

    def ranks(self, queries: TokenQueries) -> NDArray[np.int32]:
        """(w,) ranks up to k + 1; 0 if there is no answer.

        Raises:
            ModelError: the answers are no lists of words, or the service keeps failing.
        """
        contexts, words = self.inputs.contexts(queries)
        # In random order: a budget that ends early cuts all users alike.
        order = list(range(len(words)))
        random.Random(self.inputs.policy.seed).shuffle(order)
        # Text that a function prints is not part of the result. The redirection is not around
        # each call: a timed-out call that ends later would restore an outdated stdout.
        with (
            self._client() as client,
            self.run.progress("querying the service") as step,
            redirect_stdout(sys.stderr),
        ):
            shuffled_ranks = likeliest_ranks(
                client,
                [contexts[index] for index in order],
                [words[index] for index in order],
                at_once=BATCH_SIZE,
                progress=step,
            )
        if client.statistics.gave_up:
            raise self._failure(type(self._error).__name__) from self._error
        unknown = client.statistics.unknown_words
        if unknown > MAX_UNKNOWN_SHARE * client.statistics.queries * self.inputs.policy.k:
            self.run.log(
                f"The reference has none of {unknown:,} words that the service listed. If it lists "
                "pieces of words, join them first. Vestige does so for a server, openai:URL#MODEL."
            )
        ranks = np.zeros(len(order), dtype=np.int32)
        ranks[order] = shuffled_ranks
        return ranks

    @contextmanager
    def _client(self) -> Iterator[ServiceModel]:
        """The service as a model; updates the statistics at the end of the block."""
        remote, options = self.inputs.target.remote, self.options
        vocabulary = self.inputs.target.vocabulary
        known_words = frozenset(map(vocabulary.piece, range(len(vocabulary))))
        if isinstance(remote, EndpointAddress):
            with self._server_client(remote, known_words) as client:
                yield client
            return
        assert remote is not None
        client = ServiceModel(
            _report_slow_calls(remote, self.run.monitor),
            k=self.inputs.policy.k,
            budget=options.budget,
            store=self.run.store,
            known=known_words,
            retry=RetryPolicy(attempts=options.attempts, timeout=options.timeout),
        )
        yield client
        self.statistics, self._error = client.statistics.summary(), client.last_error

    @contextmanager
    def _server_client(
        self, address: EndpointAddress, known_words: frozenset[str]
    ) -> Iterator[ServiceModel]:
        path, k = self.outputs.answers(address), self.inputs.policy.k
        with open_endpoint(address, path, self.options, self.run.monitor) as (endpoint, access):
            if k > access.shown:
                raise DataError(
                    f"`top_k` {k} is more than the {access.shown} tokens that the server shows",
                    remedy=f"Give `top_k` {access.shown} or less.",
                )
            words = EndpointWords(endpoint, access, k, known_words, self.inputs.split)
            # The endpoint caches, retries and counts by itself.
            retry = RetryPolicy(at_once=BATCH_SIZE, attempts=1, give_up_after=1)
            client = ServiceModel(words, k=k, known=known_words, retry=retry)
            yield client
            self._error = client.last_error
            if isinstance(self._error, VestigeError):
                raise self._error
            endpoint.confirm()
            totals = endpoint.totals
            self.statistics = client.statistics.summary() | {
                **{name: totals[name] for name in ("calls", "tokens", "seconds")},
                **dict.fromkeys(("failures", "retries"), totals["failed_calls"]),
                "budget": self.options.budget,
                "budget_spent": endpoint.budget_spent,
                **{f"listed_{name}": words.counts[name] for name in ("tokens", "pieces")},
            }

    def _failure(self, cause: str) -> ModelError:
        queries = self.statistics["queries"]
        return ModelError(
            f"{self.inputs.target.name} keeps failing, by query {queries:,} ({cause})",
            remedy="Try it by hand, or raise `attempts` or `timeout`. Then repeat the command: "
            "Vestige caches answers.",
        )


def _report_slow_calls(ask: Ask, monitor: Monitor) -> Ask:
    """The function; logs a line while a call takes long."""
    line = (
        f"The service has not answered for {SLOW_CALL:.0f} s. Vestige waits; --timeout limits a "
        "call."
    )

    def ask_and_report(contexts: Sequence[Context]) -> Any:
        timer = threading.Timer(SLOW_CALL, monitor.log, [line])
        timer.daemon = True
        timer.start()
        try:
            return ask(contexts)
        finally:
            timer.cancel()

    return ask_and_report


def server_cost(
    contexts: Sequence[Context],
    options: RemoteOptions,
    *,
    k: int,
    max_queries: int | None = None,
) -> str:
    """A line about the expected calls and tokens.

    Args:
        contexts: candidates for queries.
        options: with the budgets.
        k: length of the lists; each word may be cut into pieces, which Vestige completes.
        max_queries: how many of the contexts will be queried at most; None: all.

    Raises:
        DataError: a budget is too small even if no word is cut into pieces.
    """
    prompts = {" ".join(context.words) for context in contexts}
    queried = len(prompts) if max_queries is None else min(max_queries, len(prompts))
    checks = MOST_CALLS + 2 + queried // CHECK_EVERY
    prompt_tokens = sum(Question(prompt).tokens for prompt in prompts) / max(len(prompts), 1)
    calls, tokens = queried + checks, round(prompt_tokens * queried) + 20 * checks
    piece_calls = queried * k * CALLS_PER_WORD
    max_tokens = tokens + round(piece_calls * (prompt_tokens + MOST_PIECES))
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
        f"a word; at most {calls + piece_calls:,} calls and about {max_tokens:,} tokens if every "
        f"listed word has {MOST_PIECES} pieces. Fewer calls if the server takes several prompts "
        "at once; more if calls fail. Cached answers cost nothing."
    )
