"""Statistics of texts under a served model, and under its base: a served or a local one.

Scores use only tokens whose log-probability all models show. If a server shows only the most
probable tokens, a local base estimates the others (`shown_statistics`). The rule is the same for
the texts and for the reference, so that p-values hold; hidden tokens cost power.

Tokens are those of a local base, whose tokenizer must split texts as the server's does, or else the
first server's. The log-probabilities of another server are summed over the same characters.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, IncompatibleModels
from vestige.models.remote.client import CHECK_EVERY
from vestige.models.remote.openai import Question, ShownToken
from vestige.models.remote.options import EndpointAddress, RemoteOptions, is_endpoint
from vestige.models.remote.probe import CALLS, EndpointAccess, opened
from vestige.models.remote.server import Endpoint
from vestige.models.remote.tokens import echoed, ends, places
from vestige.models.shown_statistics import (
    BASE_LIKELIEST,
    by_list,
    known_by_all,
    numbered,
    only,
    shown_statistics,
    with_expected,
)
from vestige.models.snapshots import Readings, Snapshots
from vestige.models.token_statistics import CachedOutputs, TokenStatistics, first_tokens
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    from vestige.arguments import ModelLike

STEP = 2
"""Calls of every connection between two steps of the progress."""

SHOWN = 20
"""Most probable tokens of a server that count."""

ALIKE = 0.5
"""Least share of the base's tokens that must be tokens of the server."""

Shown = Sequence[Sequence[ShownToken]]


@dataclass
class ServedTexts:
    """A served model, and another one that it is compared with, if there is one.

    Attributes:
        addresses: of the served models, by role; the model in question first.
        local: the other model, if it is local.
        recorded: provenance of each model.
        spent: calls, tokens and seconds in all sessions, after the reading.
        accesses: what each server shows, after the first session.
        estimated: (t,) tokens whose log-probability is hidden and estimated, after the reading.
    """

    addresses: dict[str, EndpointAddress]
    local: Snapshots | None
    remote: RemoteOptions
    recorded: dict[str, object]
    spent: dict[str, Any] = field(default_factory=dict)
    accesses: dict[str, EndpointAccess] = field(default_factory=dict)
    estimated: NDArray[np.bool_] | None = None

    @classmethod
    def open(
        cls,
        model: object,
        other: "ModelLike | None",
        remote: RemoteOptions,
        *,
        device: str,
        roles: tuple[str, str] = ("target", "base"),
    ) -> "ServedTexts":
        """Parse addresses and load a local model; no call is made.

        Raises:
            ModelError: an address is invalid, or the other model cannot be read.
        """
        first, second = roles
        addresses = {first: EndpointAddress.parse(str(model))}
        local = None
        if is_endpoint(other):
            addresses[second] = EndpointAddress.parse(str(other))
        elif other is not None:
            local = Snapshots.open({second: other}, device=device, monitor=SILENT)
        recorded: dict[str, object] = {
            role: {"path": str(address), "architecture": "endpoint"}
            for role, address in addresses.items()
        }
        return cls(addresses, local, remote, recorded | (local.recorded if local else {}))

    @property
    def models(self) -> dict[str, object]:
        """Addresses and models by role; the model in question first."""
        return {**self.addresses, **(self.local.models if self.local else {})}

    @property
    def target(self) -> str:
        return next(iter(self.addresses))

    def readings(self, lists: Mapping[str, Corpus], outputs: CachedOutputs) -> Readings:
        """Query the servers about every text, once; answers are cached, also before an error."""
        texts = [text for corpus in lists.values() for text in corpus]
        self.log_cost(texts, outputs.monitor)
        shown = {role: self.shown_by(role, texts, outputs) for role in self.addresses}
        every = self._statistics(texts, shown, outputs)
        found, known = {}, {}
        counts = {name: len(corpus) for name, corpus in lists.items()}
        for name, own in by_list(counts, every).items():
            known[name] = known_by_all(own)
            found[name] = {role: only(one, known[name]) for role, one in own.items()}
            _require_shown(name, found[name][self.target])
        first, corpus = next(iter(lists.items()))
        return Readings(found, self._read(known[first], list(corpus)), known, self._shown)

    def _read(self, known: NDArray[np.bool_], texts: Sequence[str]) -> tuple[int, int]:
        """Shown tokens of the first list, and all but the first of each text, never shown."""
        shown = known if self.estimated is None else known & ~self.estimated[: known.size]
        total = known.size
        if self.local is not None:
            total = sum(map(len, self._vocabulary.encode_batch(texts)))
        return int(shown.sum()), total - len(texts)

    @property
    def _shown(self) -> int | None:
        access = self.accesses[self.target]
        return None if access.echo == "right" else min(access.shown, SHOWN)

    @property
    def _vocabulary(self) -> SubwordVocabulary:
        vocabulary: Any = None if self.local is None else self.local.target.vocabulary
        return vocabulary  # type: ignore[no-any-return]

    def log_cost(self, texts: Sequence[str], monitor: Monitor) -> None:
        """Log the cost before the first call, and refuse a budget that is too small (DataError).

        Each text is sent once.
        """
        queries = [Question(text).tokens for text in set(texts)]
        checks = CALLS + 2 + len(queries) // CHECK_EVERY
        calls = len(queries) + checks
        tokens = sum(queries) + 20 * checks
        each = " per server" if len(self.addresses) > 1 else ""
        monitor.log(
            f"Plan: {len(queries):,} texts; at most {calls:,} calls and about {tokens:,} tokens"
            f"{each}, without retries. Vestige caches the answers."
        )
        for name, needed in (("budget", calls), ("token_budget", tokens)):
            allowed = getattr(self.remote, name)
            if allowed is not None and allowed < needed:
                raise DataError(
                    f"`{name}` {allowed} is too small: this audit needs up to {needed}",
                    remedy=f"Pass `{name}` {needed}, and some more for failed calls, or fewer "
                    "texts.",
                )

    @contextmanager
    def session(
        self, role: str, outputs: CachedOutputs
    ) -> Iterator[tuple[Endpoint, EndpointAccess]]:
        """A probed server; its answers count if the session ends without an error."""
        address = self.addresses[role]
        with opened(address, outputs.answers(address), self.remote, outputs.monitor) as found:
            endpoint, access = found
            try:
                yield endpoint, access
                if endpoint.budget_spent:
                    raise endpoint.failed()
                endpoint.confirm()
            finally:
                self._record(role, endpoint, access)

    def _record(self, role: str, endpoint: Endpoint, access: EndpointAccess) -> None:
        counted = endpoint.totals
        for name in ("calls", "failed_calls", "tokens", "seconds"):
            key = name if role == self.target else f"{role}_{name}"
            self.spent[key] = round(counted[name], 3)
        self.accesses[role] = access
        path = {"path": str(endpoint.address), "architecture": "endpoint"}
        self.recorded[role] = {**path, **access.summary()}

    def shown_by(
        self, role: str, texts: Sequence[str], outputs: CachedOutputs
    ) -> list[tuple[ShownToken, ...]]:
        """What a server shows of each text, in its own tokens.

        Raises:
            ModelError: it does not answer; its answers are cached.
            DataError: it shows no log-probabilities of a prompt's tokens.
        """
        found: list[tuple[ShownToken, ...]] = []
        with self.session(role, outputs) as (endpoint, access):
            if access.echo == "no":
                raise DataError(
                    f"{self.addresses[role]} shows no log-probabilities of a prompt's tokens",
                    remedy="Audit the model's files; vestige membership --unit user queries words.",
                )
            some = STEP * self.remote.concurrency * endpoint.together
            with outputs.monitor.progress(f"querying the {role}") as step:
                for first in range(0, len(texts), some):
                    answers = echoed(endpoint, access, texts[first : first + some])
                    own = [one for one in answers if one is not None]
                    found += own
                    if len(own) < len(answers):
                        raise endpoint.failed()
                    step(len(found), len(texts))
        return found

    def _statistics(
        self, texts: Sequence[str], shown: Mapping[str, Shown], outputs: CachedOutputs
    ) -> dict[str, TokenStatistics]:
        """Statistics of all texts, by role."""
        own = shown[self.target]
        if self.local is None:
            cuts = [
                sorted(set(places(text, one)) - {0}) for text, one in zip(texts, own, strict=True)
            ]
            ids = numbered(texts, cuts)
            return {
                role: shown_statistics(texts, one, cuts, ids=ids) for role, one in shown.items()
            }
        [other] = self.local.models
        vocabulary, rows = self._vocabulary, self.local.encoded(texts)
        cuts = [ends(text, vocabulary) for text in texts]
        self._require_alike(texts, own, cuts, outputs.monitor)
        ids = vocabulary.encode_batch(texts)
        whole = shown_statistics(texts, own, cuts, ids=ids, vocabulary=vocabulary)
        read = self.local.statistics(rows, outputs, of="the texts", likeliest=BASE_LIKELIEST)
        target = first_tokens(whole, np.arange(len(rows)), [len(row) for row in rows])
        return {
            self.target: self._completed(target, read[other], outputs.monitor),
            other: read[other],
        }

    def _completed(
        self, target: TokenStatistics, base: TokenStatistics, monitor: Monitor
    ) -> TokenStatistics:
        """The target's statistics with hidden log-probabilities estimated by the base."""
        hidden = np.isnan(target.log_probs)
        target = with_expected(target, base)
        self.estimated = hidden & ~np.isnan(target.log_probs)
        self.spent["tokens_expected"] = round(float(self.estimated.mean()), 4)
        if self.spent["tokens_expected"]:
            monitor.log(
                f"The server hides the log-probability of {self.spent['tokens_expected']:.0%} of "
                "the tokens: Vestige estimates them from the shown ones and the base."
            )
        return target

    def _require_alike(
        self, texts: Sequence[str], shown: Shown, cuts: Sequence[Sequence[int]], monitor: Monitor
    ) -> None:
        """Refuse a base whose tokens are not the server's."""
        same = total = 0
        for text, own, ours in zip(texts, shown, cuts, strict=True):
            found = places(text, own)
            same += sum(end in found for end in ours)
            total += len(ours)
        share = same / max(total, 1)
        self.spent["tokens_alike"] = round(share, 4)
        if share < ALIKE:
            raise IncompatibleModels(
                f"only {share:.0%} of the tokens of `base` end where tokens of the server end",
                remedy="Pass a base with the server's tokenizer, or serve the base and pass its "
                "address: its log-probabilities are summed over the same characters.",
            )
        if share < 1:
            monitor.log(
                f"{share:.1%} of the base's tokens end where tokens of the server end; the others "
                "are not compared."
            )


def _require_shown(name: str, statistics: TokenStatistics) -> None:
    """Refuse a list with a text of which no token is shown."""
    numbers: list[int] = np.flatnonzero(np.diff(statistics.offsets) == 0).tolist()
    if numbers:
        raise DataError(
            f"the server shows no log-probability of any token of {len(numbers):,} texts of "
            f"`{name}`, such as text {numbers[0] + 1}",
            remedy="Remove such texts from every list, or pass longer ones.",
        )
