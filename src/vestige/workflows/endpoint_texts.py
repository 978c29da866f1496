"""A server that is asked about texts, and its base: another one, or a model that is read.

Every score is made of those tokens of a text of which all sides tell a log-probability. Where a
server shows the likeliest tokens only, that of the others is expected, by a base that is read; with
another server as base, or none, they are left out. It is one rule for the texts and for the
reference, so that p-values hold; what is not known costs power.

Tokens are those of a base that is read, whose tokenizer must cut texts as the server's does, or
else the target's own. What another server says is added up over the same characters.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vestige.errors import DataError, IncompatibleModels
from vestige.models.endpoint_address import EndpointAddress, is_endpoint
from vestige.monitor import Monitor
from vestige.workflows.asked_texts import AskedTexts
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.options import ModelLike
from vestige.workflows.text_models import TextModels
from vestige.workflows.told_tokens import by_role, only, require_told, told_by_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus
    from vestige.data.subwords import SubwordVocabulary
    from vestige.models.endpoint import Endpoint
    from vestige.models.endpoint_probe import EndpointAccess
    from vestige.models.token_scores import ShownToken

SCORES = ("error-zone", "learnt", "log-ratio", "loss")
"""Scores of log-probabilities, and of whether a token is the first choice."""

STEP = 2
"""Calls of every connection between two steps of a bar."""

SHOWN = 20
"""Of the likeliest tokens that a server shows so many count at most."""

ALIKE = 0.5
"""Share of the base's tokens that must begin and end where tokens of the server's do."""

Shown = Sequence[Sequence["ShownToken"]]


@dataclass
class ServedTexts:
    """A target that is served, and its base where there is one.

    Attributes:
        addresses: by role, of those that are served.
        read: the base that is read, if it is.
        settings: of what they may be asked.
        recorded: what a run records of each.
        spent: calls, tokens and seconds of each in all sessions, once they were asked.
        accesses: what each can do, once it was asked.
        expected: (t,) tokens whose log-probability is not shown but expected, once it was asked.
    """

    addresses: dict[str, EndpointAddress]
    read: TextModels | None
    settings: EndpointSettings
    recorded: dict[str, object]
    spent: dict[str, Any] = field(default_factory=dict)
    accesses: "dict[str, EndpointAccess]" = field(default_factory=dict)
    expected: "NDArray[np.bool_] | None" = None

    @classmethod
    def open(
        cls,
        model: object,
        base: ModelLike | None,
        settings: EndpointSettings,
        *,
        device: str,
    ) -> "ServedTexts":
        """Read addresses, and the base if it is a folder; nothing is asked.

        Raises:
            ModelError: an address is none, or the base cannot be read.
        """
        addresses = {"target": EndpointAddress.parse(str(model))}
        read = None
        if is_endpoint(base):
            addresses["base"] = EndpointAddress.parse(str(base))
        elif base is not None:
            read = TextModels.alone(base, device=device)
        recorded: dict[str, object] = {
            role: {"path": str(address), "architecture": "endpoint"}
            for role, address in addresses.items()
        }
        if read is not None:
            recorded["base"] = read.recorded["target"]
        return cls(addresses, read, settings, recorded)

    @property
    def models(self) -> dict[str, object]:
        """The target, and the base if there is one, by role."""
        return {**self.addresses, **({} if self.read is None else {"base": self.read.target})}

    def require(self, score: str) -> None:
        """Refuse a score of what no server shows.

        Raises:
            DataError: it needs more than log-probabilities of tokens, or a base that is read.
        """
        if score == "learnt" and self.read is None:
            raise DataError(
                "`score` learnt trains shadows, for which a served base is not enough",
                remedy="Give the folder of the base.",
            )
        if score not in SCORES:
            raise DataError(
                f"`score` {score} needs more than {self.addresses['target']} shows, which are "
                "log-probabilities of tokens and the likeliest ones",
                remedy=f"Give one of {', '.join(SCORES)}, or the model's folder.",
            )

    def asked(
        self, lists: "Mapping[str, Corpus]", folder: Path | None, monitor: Monitor
    ) -> AskedTexts:
        """Ask about every text, once.

        Raises:
            ModelError: a server gives no answer; what it answered is kept.
            DataError: the budget is too small, or nothing is told of a text.
            IncompatibleModels: the base that is read cuts texts otherwise.
        """
        texts = {role: list(corpus) for role, corpus in lists.items()}
        every = [text for some in texts.values() for text in some]
        self.tell_cost(every, monitor)
        with ExitStack() as stack:
            place = folder or Path(stack.enter_context(TemporaryDirectory()))
            shown = {role: self.shown_by(role, every, place, monitor) for role in self.addresses}
            said = self._statistics(every, shown, folder, monitor)
        own_said = by_role({role: len(some) for role, some in texts.items()}, said)
        told = {role: told_by_all(own) for role, own in own_said.items()}
        known = {
            role: {name: only(one, told[role]) for name, one in own.items()}
            for role, own in own_said.items()
        }
        for role, own in known.items():
            require_told(role, own["target"])
        first, audited = next(iter(texts.items()))
        shown_of = told[first]
        if self.expected is not None:
            shown_of = shown_of & ~self.expected[: shown_of.size]
        # A server says nothing of the first token of a text.
        every_token = shown_of.size
        if self.read is not None:
            every_token = sum(len(ids) for ids in self._vocabulary.encode_batch(audited))
        return AskedTexts(
            self._base, lists, known, folder, monitor, told=told, shown=self._shown,
            read=(int(shown_of.sum()), every_token - len(audited)),
        )  # fmt: skip

    @property
    def _shown(self) -> int | None:
        """How many of the likeliest tokens the target shows alone; None where it tells of all."""
        access = self.accesses["target"]
        return None if access.echo == "right" else min(access.shown, SHOWN)

    @property
    def _base(self) -> TextModels:
        """What can be asked further: the base, if it is read."""
        if self.read is None:
            return TextModels({}, {})
        return TextModels({"base": self.read.target}, {"base": self.recorded["base"]})

    def tell_cost(
        self, texts: Sequence[str], monitor: Monitor, *, continued: int = 0, length: int = 0
    ) -> None:
        """Say what it will take, before the first call, and refuse a budget that is too small.

        Args:
            texts: that are asked about, each once.
            continued: how many of them are also gone on with.
            length: tokens that are written then.

        Raises:
            DataError: calls or tokens are too few.
        """
        from vestige.models.endpoint import CHECK_EVERY
        from vestige.models.endpoint_limits import reckon
        from vestige.models.endpoint_probe import CALLS
        from vestige.models.endpoint_wire import Question

        different = set(texts)
        asked = [reckon(Question(text)) for text in different]
        written = sorted(asked)[len(asked) - min(continued, len(asked)) :]
        checks = CALLS + 2 + (len(asked) + len(written)) // CHECK_EVERY
        calls = len(asked) + len(written) + checks
        tokens = sum(asked) + sum(written) + length * len(written) + 20 * checks
        each = " each" if len(self.addresses) > 1 else ""
        monitor.log(
            f"The endpoint{'s are' if each else ' is'} asked about {len(different):,} texts: at "
            f"most {calls:,} calls and about {tokens:,} tokens{each}, and what fails again. What "
            "was answered before is not asked again"
        )
        for name, needed in (("budget", calls), ("token_budget", tokens)):
            allowed = getattr(self.settings, name)
            if allowed is not None and allowed < needed:
                raise DataError(
                    f"`{name}` {allowed} is too small: this audit takes up to {needed}",
                    remedy=f"Give `{name}` {needed} (and some more for calls that fail), or fewer "
                    "texts.",
                )

    @contextmanager
    def session(
        self, role: str, folder: Path, monitor: Monitor
    ) -> "Iterator[tuple[Endpoint, EndpointAccess]]":
        """A server that was probed; what it says counts when the session ends without an error.

        Args:
            role: whose.
            folder: with the answers that are kept.
            monitor: told of what it can do.
        """
        from vestige.models.endpoint_session import opened

        address = self.addresses[role]
        name = sha256(str(address).encode()).hexdigest()[:16]
        path = folder / f"{name}.sqlite"
        with opened(address, path, self.settings, monitor) as (endpoint, access):
            try:
                yield endpoint, access
                if endpoint.budget_spent:
                    raise endpoint.failed()
                endpoint.confirm()
            finally:
                self._record(role, endpoint, access)

    def shown_by(
        self, role: str, texts: Sequence[str], folder: Path, monitor: Monitor
    ) -> "list[tuple[ShownToken, ...]]":
        """What a server shows of each text, in tokens of its own.

        Raises:
            ModelError: it gives no answer; what it answered is kept.
            DataError: it takes a call for each token, and no budget allows that.
        """
        from vestige.models.endpoint_tokens import EndpointTokens

        found: list[tuple[ShownToken, ...]] = []
        with self.session(role, folder, monitor) as (endpoint, access):
            self._require_affordable(role, access, texts)
            asked = EndpointTokens(endpoint, access, self._vocabulary)
            some = STEP * self.settings.concurrency * endpoint.limits.together
            with monitor.progress(f"asking the {role} about the texts") as step:
                for first in range(0, len(texts), some):
                    told = asked.scored(texts[first : first + some])
                    own = [one for one in told if one is not None]
                    found += own
                    if len(own) < len(told):
                        raise endpoint.failed()
                    step(len(found), len(texts))
        return found

    def _record(self, role: str, endpoint: "Endpoint", access: "EndpointAccess") -> None:
        counted = endpoint.store.statistics()
        for name in ("calls", "failed_calls", "tokens", "seconds"):
            key = name if role == "target" else f"{role}_{name}"
            self.spent[key] = round(counted[name], 3)
        self.accesses[role] = access
        self.recorded[role] = {
            "path": str(endpoint.address),
            "architecture": "endpoint",
            **access.summary(),
        }

    @property
    def _vocabulary(self) -> "SubwordVocabulary":
        vocabulary: Any = None if self.read is None else self.read.target.vocabulary
        return vocabulary  # type: ignore[no-any-return]

    def _require_affordable(
        self, role: str, access: "EndpointAccess", texts: Sequence[str]
    ) -> None:
        """Refuse to ask token by token, unless a budget says that this is wanted."""
        from vestige.models.endpoint_tokens import ends

        if access.echo != "no":
            return
        if self.read is None:
            raise DataError(
                f"{self.addresses[role]} shows no log-probabilities of a prompt's tokens, and "
                "without a `base` that is read nobody knows where its tokens end",
                remedy="Audit the model's files, or give `vestige audit-texts` a folder with the "
                "same tokenizer as `base`; `vestige membership --unit user` queries words.",
            )
        needed = len({text[:end] for text in texts for end in ends(text, self._vocabulary)})
        if self.settings.budget is None or self.settings.budget < needed:
            raise DataError(
                f"{self.addresses[role]} shows no log-probabilities of a prompt's tokens: each of "
                f"{needed:,} places takes a call",
                remedy=f"Give a `budget` of {needed} calls and some more if they are wanted, or "
                "fewer texts.",
            )

    def _statistics(
        self,
        texts: Sequence[str],
        shown: Mapping[str, Shown],
        folder: Path | None,
        monitor: Monitor,
    ) -> "dict[str, TokenStatistics]":
        """What each side says of the tokens of all texts."""
        import numpy as np

        from vestige.attacks.texts.endpoint_statistics import numbered, shown_statistics
        from vestige.attacks.texts.shown_tokens import BASE_LIKELIEST, with_expected
        from vestige.attacks.texts.statistics_of_parts import first_tokens
        from vestige.models.endpoint_tokens import ends, places

        if self.read is None:
            cuts = [
                sorted(set(places(text, own)) - {0})
                for text, own in zip(texts, shown["target"], strict=True)
            ]
            ids = numbered(texts, cuts)
            return {
                role: shown_statistics(texts, own, cuts, ids=ids) for role, own in shown.items()
            }
        vocabulary = self._vocabulary
        cuts = [ends(text, vocabulary) for text in texts]
        self._require_alike(texts, shown["target"], cuts, monitor)
        target = shown_statistics(
            texts, shown["target"], cuts, ids=vocabulary.encode_batch(texts), vocabulary=vocabulary
        )
        rows = self.read.encoded(texts)
        base = self.read.statistics(
            rows, folder, of="the texts", monitor=monitor, likeliest=BASE_LIKELIEST
        )["target"]
        lengths = np.array([len(ids) for ids in rows])
        target = first_tokens(target, np.arange(len(rows)), lengths)
        hidden = np.isnan(target.log_probs)
        target = with_expected(target, base)
        self.expected = hidden & ~np.isnan(target.log_probs)
        self.spent["tokens_expected"] = round(float(self.expected.mean()), 4)
        if self.spent["tokens_expected"]:
            monitor.log(
                f"Of {self.spent['tokens_expected']:.0%} of the tokens the server shows no "
                "log-probability: it is expected from those it shows, as the base divides the rest"
            )
        return {"target": target, "base": base}

    def _require_alike(
        self,
        texts: Sequence[str],
        shown: Shown,
        cuts: Sequence[Sequence[int]],
        monitor: Monitor,
    ) -> None:
        from vestige.models.endpoint_tokens import places

        there = every = 0
        for text, own, ours in zip(texts, shown, cuts, strict=True):
            found = places(text, own)
            there += sum(end in found for end in ours)
            every += len(ours)
        share = there / max(every, 1)
        self.spent["tokens_alike"] = round(share, 4)
        if share < ALIKE:
            raise IncompatibleModels(
                f"only {share:.0%} of the tokens of `base` end where tokens of the server's do",
                remedy="Give a base with the server's tokenizer, or serve the base and give its "
                "address: its log-probabilities are added up over the same characters.",
            )
        if share < 1:
            monitor.log(
                f"{share:.1%} of the tokens of the base end where tokens of the server's do; the "
                "others are left out"
            )
