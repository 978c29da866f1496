"""Statistics of texts under a served model, and under its base, which may be served or local.

Scores use only tokens whose log-probability all models show. If a server shows only the most
probable tokens, a local base estimates the others (`shown_statistics`). The rule is the same for
the texts and for the reference, so p-values are valid; hidden tokens cost power.

The tokens are those of a local base, whose tokenizer must split texts as the server's does, or else
those of the first server. Log-probabilities of another server are summed over the same
characters.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, IncompatibleModels
from vestige.models.remote.client import CHECK_EVERY
from vestige.models.remote.openai import Question, ShownToken
from vestige.models.remote.options import EndpointAddress, RemoteOptions, is_endpoint
from vestige.models.remote.probe import MOST_CALLS, EndpointAccess, open_endpoint
from vestige.models.remote.server import Endpoint
from vestige.models.remote.tokens import echo_tokens, token_ends, token_starts
from vestige.models.shown_statistics import (
    BASE_LIKELIEST,
    known_tokens,
    select_tokens,
    server_pieces,
    shown_statistics,
    split_by_list,
    with_expected,
)
from vestige.models.snapshots import Readings, Snapshots
from vestige.models.token_statistics import CachedOutputs, TokenStatistics, first_tokens
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    from vestige.arguments import ModelLike

CALLS_PER_REPORT = 2
"""Calls per connection between two reports of progress."""

MOST_SHOWN = 20
"""Most probable tokens of a server that are used."""

LEAST_SHARED = 0.5
"""Least share of the base's tokens that end where tokens of the server end."""

Shown = Sequence[Sequence[ShownToken]]


@dataclass
class ServedTexts:
    """A served model, and possibly another model that it is compared with.

    Attributes:
        addresses: of the served models, by role; the target is the first.
        local: the other model, if it is local.
        recorded: provenance of each model.
        spent: calls, tokens and seconds of all sessions, after the reading.
        accesses: what each server shows, after the first session.
        estimated: (t,) tokens whose hidden log-probability was estimated, after the reading.
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
        """Parse addresses and load a local model, without a call.

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
        """Addresses and models by role; the target is the first."""
        return {**self.addresses, **(self.local.models if self.local else {})}

    @property
    def target(self) -> str:
        return next(iter(self.addresses))

    def readings(self, lists: Mapping[str, Corpus], outputs: CachedOutputs) -> Readings:
        """Query the servers about every text once; answers are cached, even before an error."""
        texts = [text for corpus in lists.values() for text in corpus]
        self.log_cost(texts, outputs.monitor)
        shown = {role: self.shown_by(role, texts, outputs) for role in self.addresses}
        whole = self._statistics(texts, shown, outputs)
        statistics, masks = {}, {}
        counts = {name: len(corpus) for name, corpus in lists.items()}
        for name, models in split_by_list(counts, whole).items():
            masks[name] = known_tokens(models)
            statistics[name] = {
                role: select_tokens(model, masks[name]) for role, model in models.items()
            }
            _require_shown(name, statistics[name][self.target])
        first, corpus = next(iter(lists.items()))
        return Readings(
            statistics, self._coverage(masks[first], list(corpus)), masks, self._most_shown
        )

    def _coverage(self, known: NDArray[np.bool_], texts: Sequence[str]) -> tuple[int, int]:
        """Shown tokens of the first list, and all its tokens without the first of each text."""
        scored = known if self.estimated is None else known & ~self.estimated[: known.size]
        total = known.size
        if self.local is not None:
            total = sum(map(len, self._vocabulary.encode_batch(texts)))
        return int(scored.sum()), total - len(texts)

    @property
    def _most_shown(self) -> int | None:
        access = self.accesses[self.target]
        return None if access.echo == "right" else min(access.shown, MOST_SHOWN)

    @property
    def _vocabulary(self) -> SubwordVocabulary:
        vocabulary: Any = None if self.local is None else self.local.target.vocabulary
        return vocabulary  # type: ignore[no-any-return]

    def log_cost(self, texts: Sequence[str], monitor: Monitor) -> None:
        """Log the cost before the first call; DataError if the budget is too small."""
        costs = [Question(text).tokens for text in set(texts)]
        checks = MOST_CALLS + 2 + len(costs) // CHECK_EVERY
        calls = len(costs) + checks
        tokens = sum(costs) + 20 * checks
        per_server = " per server" if len(self.addresses) > 1 else ""
        monitor.log(
            f"Plan: {len(costs):,} texts; at most {calls:,} calls and about {tokens:,} tokens"
            f"{per_server}, without retries. Vestige caches the answers."
        )
        for option, needed in (("budget", calls), ("token_budget", tokens)):
            allowed = getattr(self.remote, option)
            if allowed is not None and allowed < needed:
                raise DataError(
                    f"`{option}` {allowed} is too small: this audit needs up to {needed}",
                    remedy=f"Pass `{option}` {needed}, and some more for failed calls, or fewer "
                    "texts.",
                )

    @contextmanager
    def session(
        self, role: str, outputs: CachedOutputs
    ) -> Iterator[tuple[Endpoint, EndpointAccess]]:
        """A probed server; its answers count if the session ends without an error."""
        address = self.addresses[role]
        path, monitor = outputs.answers(address), outputs.monitor
        with open_endpoint(address, path, self.remote, monitor) as (endpoint, access):
            try:
                yield endpoint, access
                if endpoint.budget_spent:
                    raise endpoint.failure()
                endpoint.confirm()
            finally:
                self._record(role, endpoint, access)

    def _record(self, role: str, endpoint: Endpoint, access: EndpointAccess) -> None:
        totals = endpoint.totals
        for name in ("calls", "failed_calls", "tokens", "seconds"):
            key = name if role == self.target else f"{role}_{name}"
            self.spent[key] = round(totals[name], 3)
        self.accesses[role] = access
        path = {"path": str(endpoint.address), "architecture": "endpoint"}
        self.recorded[role] = {**path, **asdict(access)}

    def shown_by(
        self, role: str, texts: Sequence[str], outputs: CachedOutputs
    ) -> list[tuple[ShownToken, ...]]:
        """What a server shows of each text, in the server's tokens.

        Raises:
            ModelError: it does not answer; earlier answers are cached.
            DataError: it shows no log-probabilities of a prompt's tokens.
        """
        result: list[tuple[ShownToken, ...]] = []
        with self.session(role, outputs) as (endpoint, access):
            if access.echo == "no":
                raise DataError(
                    f"{self.addresses[role]} shows no log-probabilities of a prompt's tokens",
                    remedy="Audit the model's files; vestige membership --unit user queries words.",
                )
            group = CALLS_PER_REPORT * self.remote.concurrency * endpoint.together
            with outputs.monitor.progress(f"querying the {role}") as report:
                for first in range(0, len(texts), group):
                    answers = echo_tokens(endpoint, access, texts[first : first + group])
                    answered = [answer for answer in answers if answer is not None]
                    result += answered
                    if len(answered) < len(answers):
                        raise endpoint.failure()
                    report(len(result), len(texts))
        return result

    def _statistics(
        self, texts: Sequence[str], shown: Mapping[str, Shown], outputs: CachedOutputs
    ) -> dict[str, TokenStatistics]:
        """Statistics of all texts, by role."""
        target_tokens = shown[self.target]
        if self.local is None:
            cuts, ids = server_pieces(texts, target_tokens)
            return {
                role: shown_statistics(texts, tokens, cuts, ids=ids)
                for role, tokens in shown.items()
            }
        [base] = self.local.models
        vocabulary, rows = self._vocabulary, self.local.encoded(texts)
        cuts = [token_ends(text, vocabulary) for text in texts]
        self._require_same_tokens(texts, target_tokens, cuts, outputs.monitor)
        ids = vocabulary.encode_batch(texts)
        untruncated = shown_statistics(texts, target_tokens, cuts, ids=ids, vocabulary=vocabulary)
        local = self.local.statistics(rows, outputs, of="the texts", likeliest=BASE_LIKELIEST)
        target = first_tokens(untruncated, np.arange(len(rows)), [len(row) for row in rows])
        return {
            self.target: self._with_estimates(target, local[base], outputs.monitor),
            base: local[base],
        }

    def _with_estimates(
        self, target: TokenStatistics, base: TokenStatistics, monitor: Monitor
    ) -> TokenStatistics:
        """The target's statistics, with hidden log-probabilities estimated from the base."""
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

    def _require_same_tokens(
        self, texts: Sequence[str], shown: Shown, cuts: Sequence[Sequence[int]], monitor: Monitor
    ) -> None:
        """Refuse a base whose tokenizer differs from the server's."""
        shared = total = 0
        for text, tokens, text_cuts in zip(texts, shown, cuts, strict=True):
            starts = token_starts(text, tokens)
            shared += sum(end in starts for end in text_cuts)
            total += len(text_cuts)
        share = shared / max(total, 1)
        self.spent["tokens_alike"] = round(share, 4)
        if share < LEAST_SHARED:
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
    """Refuse a list with a text that has no shown token."""
    unshown: list[int] = np.flatnonzero(np.diff(statistics.offsets) == 0).tolist()
    if unshown:
        raise DataError(
            f"the server shows no log-probability of any token of {len(unshown):,} texts of "
            f"`{name}`, such as text {unshown[0] + 1}",
            remedy="Remove such texts from every list, or pass longer ones.",
        )
