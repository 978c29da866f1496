"""A service as the target of an audit: within its budget, and nothing is queried twice."""

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.data.token_queries import TokenQueries
from vestige.errors import ModelError, VestigeError
from vestige.models.answer_cache import AnswerCache
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_words import EndpointWords
from vestige.models.service import Ask, QueryStatistics, RetryPolicy, ServiceModel
from vestige.models.top_k import Context, likeliest_ranks
from vestige.monitor import Monitor
from vestige.workflows.audit_endpoint import opened, require_shown, spent, tell_cost
from vestige.workflows.audit_inputs import AuditInputs
from vestige.workflows.audit_options import ServiceSettings

AT_ONCE = 64
"""Contexts that are asked about together."""
UNKNOWN = 0.5
"""Share of unknown words in lists from which on they may be pieces of words."""
SILENCE = 60.0
"""Seconds after which a call that has not come back is reported."""


@dataclass(kw_only=True)
class Service:
    """A service behind `ServiceModel`, with answers that outlive the program.

    Attributes:
        answers: the file that keeps the answers.
        show_secrets: whether an error of the callable, which may quote texts, is shown.
    """

    inputs: AuditInputs
    policy: QueryPolicy
    settings: ServiceSettings
    answers: Path
    show_secrets: bool
    monitor: Monitor
    _counted: QueryStatistics | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _spent: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def statistics(self) -> dict[str, Any]:
        """Query statistics of all sessions."""
        return {} if self._counted is None else self._counted.summary() | self._spent

    def afford(self, asked: TokenQueries) -> None:
        """Refuse a budget that is too small for these words; see `ServiceSettings.afford`."""
        contexts, _ = self.inputs.contexts(asked)
        if self._address is not None:
            tell_cost(contexts, self.settings, k=self.policy.k or 0, monitor=self.monitor)
        else:
            self.settings.afford(len(set(contexts)), exact=True)

    def afford_most(self, asked: TokenQueries) -> None:
        """The same before it is known which of the words will be queried."""
        if self._address is not None:
            contexts, _ = self.inputs.contexts(asked)
            most = int(self.policy.most(asked).sum()) + 1
            tell_cost(
                contexts, self.settings, k=self.policy.k or 0, most=most, monitor=self.monitor
            )
        elif self.settings.budget is not None:
            # One more, since the service is tried with a word that may not be selected later.
            self.settings.afford(int(self.policy.most(asked).sum()) + 1, exact=False)

    def probe(self, asked: TokenQueries) -> None:
        """Query one word: a callable that cannot be used is refused before long work.

        Raises:
            ModelError: it gives no lists of words, or fails.
        """
        if not self.ranks(asked.take([0])).any() and not self.statistics["refused"]:
            why = f": {self._reason()}" if self._error else ""
            raise self._gave_up(f"the first query was not answered{why}")

    def ranks(self, asked: TokenQueries) -> NDArray[np.int32]:
        """(w,) ranks up to k + 1; 0 where there was no answer.

        Raises:
            ModelError: the callable's answers are no lists of words, or it keeps failing.
        """
        contexts, words = self.inputs.contexts(asked)
        # In a random order: where a budget ends early, nobody is left out more than others.
        order = list(range(len(words)))
        random.Random(self.policy.seed).shuffle(order)
        with self._model() as model:
            # What a callable prints is no part of the result. Not about each call: one that was
            # given up would put back, when it ends, what was stdout when it began.
            with self.monitor.progress("asking the service") as step, redirect_stdout(sys.stderr):
                found = likeliest_ranks(
                    model,
                    [contexts[n] for n in order],
                    [words[n] for n in order],
                    at_once=AT_ONCE,
                    progress=step,
                )
            self._counted, self._error = model.statistics, model.last_error
            if self._address is not None and isinstance(self._error, VestigeError):
                raise self._error
        if self._counted.gave_up:
            raise self._gave_up(self._reason())
        if self._counted.unknown_words > UNKNOWN * self._counted.queries * self.policy.k:
            self.monitor.log(
                f"{self._counted.unknown_words:,} of the words that the service listed are words "
                "that `reference` does not know. If it lists pieces of words, put them together "
                "before they are given back; an endpoint, openai:URL#MODEL, is asked to the end "
                "of a word"
            )
        ranks = np.zeros(len(order), dtype=np.int32)
        ranks[order] = found
        return ranks

    @property
    def _address(self) -> EndpointAddress | None:
        ask = self.inputs.target.ask
        return ask if isinstance(ask, EndpointAddress) else None

    @contextmanager
    def _model(self) -> Iterator[ServiceModel]:
        """The service as a model, while its answers' file is open."""
        ask, k = self.inputs.target.ask, self.policy.k
        known = self.inputs.known_words
        if ask is None:
            raise TypeError("a service must have a callable or an address, got none")
        if isinstance(ask, EndpointAddress):
            with opened(ask, self.answers, self.settings, self.monitor) as (endpoint, access):
                words = EndpointWords(endpoint, access, k, known, self.inputs.split)
                require_shown(access, k)
                # It keeps its answers, tries again and counts for itself.
                retry = RetryPolicy(at_once=AT_ONCE, attempts=1, give_up_after=1)
                model = ServiceModel(words, k=k, known=known, retry=retry)
                yield model
                if not isinstance(model.last_error, VestigeError):
                    endpoint.confirm()
                self._spent = spent(endpoint, words)
            return
        with AnswerCache(self.answers, self.monitor) as kept:
            yield ServiceModel(
                _reporting_silence(ask, self.monitor),
                k=k,
                budget=self.settings.budget,
                cache=kept,
                known=known,
                retry=RetryPolicy(attempts=self.settings.attempts, timeout=self.settings.timeout),
            )

    def _reason(self) -> str:
        """The callable's last error; its words, which may quote texts, only if they are wanted."""
        name = type(self._error).__name__
        shown = f": {self._error}" if self.show_secrets else ""
        return f"{name}{shown or ', --show-secrets shows the whole of it'}"

    def _gave_up(self, what: str) -> ModelError:
        return ModelError(
            f"{self.inputs.target.name} fails again and again, by query "
            f"{self.statistics['queries']:,} ({what})",
            remedy="Try it by hand, or raise `attempts` or `timeout`; then give the same command "
            "again: what was answered is kept.",
        )


def _reporting_silence(ask: Ask, monitor: Monitor) -> Ask:
    """The callable; a long silence of it is reported."""
    line = (
        f"The service has not answered for {SILENCE:.0f} s: it is waited for. --timeout bounds a "
        "call; interrupted, the same command goes on where it was"
    )

    def asked(contexts: Sequence[Context]) -> Sequence[Sequence[str] | None]:
        timer = threading.Timer(SILENCE, monitor.log, [line])
        timer.daemon = True
        timer.start()
        try:
            return ask(contexts)
        finally:
            timer.cancel()

    return asked
