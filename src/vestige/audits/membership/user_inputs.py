"""Inputs of an audit of users: the model, texts as ids, parts of users, and words to query."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from vestige import claims
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.ranked_words import (
    FEWEST_WORDS,
    Floats,
    ShadowRanks,
    Texts,
    WordCounts,
)
from vestige.audits.membership.user_texts import NonMembers, UserTexts, users_needed
from vestige.claims import Check
from vestige.claims.comparable import LEVEL, comparable_texts
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode, encode_pairs, sources_of
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.metrics.tests import calibration_needed, means_by_group
from vestige.models.checkpoints import load_seq2seq
from vestige.models.remote.options import (
    EndpointAddress,
    import_callable,
    is_callable_name,
    is_endpoint,
)
from vestige.models.top_k import Context
from vestige.training.shadow_jobs import Task
from vestige.training.word_frequencies import useless_model

if TYPE_CHECKING:
    from vestige.session import Session

Ask: TypeAlias = Callable[[Sequence[Context]], Any]
Remote: TypeAlias = Ask | EndpointAddress


@dataclass(frozen=True, kw_only=True)
class Target:
    """The audited model.

    Attributes:
        name: in messages.
        task: what it does.
        vocabulary: its words; of a remote model, the most frequent ones of some reference texts.
        source_vocabulary: of the texts that it answers or translates; None for next words.
        vocab_size: words that it could show.
        model: the network; None for a remote model.
        remote: the function or the server's address; None for a local model.
        record: provenance.
    """

    name: str
    task: Task
    vocabulary: Vocabulary
    source_vocabulary: Vocabulary | None = None
    vocab_size: int
    model: Any = None
    remote: Remote | None = None
    record: Any

    @classmethod
    def local(cls, given: Any, model: Any, record: Any) -> Self:
        """A loaded model of next words, translations or dialogue."""
        path = isinstance(given, str | PathLike)
        source = getattr(model, "source_vocabulary", None)
        pairs: Task = "translation" if source and model.config.attention else "dialogue"
        return cls(
            name=fspath(given) if path else f"<{type(given).__name__}>",
            task="next-word" if source is None else pairs,
            vocabulary=model.vocabulary,
            source_vocabulary=source,
            vocab_size=model.vocab_size,
            model=model,
            record=record,
        )


def remote_of(model: Any) -> Remote | None:
    """The function or the server that MODEL names; None for a local model."""
    if isinstance(model, EndpointAddress):
        return model
    if isinstance(model, str | PathLike):
        name = fspath(model)
        if is_endpoint(name):
            return EndpointAddress.parse(name)
        return import_callable(name) if is_callable_name(name) else None
    if hasattr(model, "vocabulary"):
        return None
    ask: Any = getattr(model, "likeliest", model)
    if not callable(ask):
        raise ModelError(
            f"{type(model).__name__} is neither a model nor a function",
            remedy="Give a path, a loaded model, or a function from contexts to words.",
        )
    return ask  # type: ignore[no-any-return]


def local_target(run: "Session", model: Any) -> Target:
    """Load a local model."""
    if warning := useless_model(model):
        run.log(warning)
    try:
        loaded: Any = run.model("target", model)
    except AccessDenied as refused:
        try:
            loaded = load_seq2seq(str(model), device=run.device)
        except ModelError:
            raise refused from None
        run.record_model("target", model, loaded)
    return Target.local(model, loaded, run.models["target"])


def remote_target(
    run: "Session", model: Any, remote: Remote, texts: Corpus, options: QueryOptions
) -> Target:
    """A remote model; Vestige queries the most frequent words of some texts.

    These are of non-members without another part in the audit: of the compared users, no one's
    words may be known better than another's.
    """
    size, tokenise = options.vocabulary_size, options.tokenizer
    server = isinstance(remote, EndpointAddress)
    name = model if isinstance(model, str) or server else None
    name = str(name or getattr(remote, "__qualname__", type(remote)))
    words, sources = WordVocabulary.build(texts, size=size, tokenise=tokenise), None
    if options.task not in (None, "next-word"):
        sources = WordVocabulary.build(sources_of(texts), size=size, tokenise=tokenise)
    run.models["target"] = {
        "path": name,
        "architecture": "endpoint" if server else "callable",
        "vocabulary": words.fingerprint(),
    }
    return Target(
        name=name,
        task=options.task or "next-word",
        vocabulary=words,
        source_vocabulary=sources,
        vocab_size=len(words),
        remote=remote,
        record=run.models["target"],
    )


@dataclass(frozen=True, kw_only=True)
class UserInputs:
    """Inputs of an audit of users.

    Attributes:
        target: the audited model.
        texts: as read.
        policy: which words are queried.
        encoded: all texts as token ids, the audited first.
        targets: those whose words are queried; of pairs, without the sources.
        queries: w words that can be queried; none of the counted users.
        counts: word counts of the counted users; with a base, of all users.
        audited: users, as indices of `queries.names`.
        known: groups of non-members, likewise.
    """

    target: Target
    texts: UserTexts
    policy: QueryPolicy
    encoded: Texts
    targets: EncodedCorpus
    queries: TokenQueries
    counts: WordCounts
    audited: tuple[int, ...]
    known: NonMembers[int]

    @classmethod
    def of(
        cls, target: Target, texts: UserTexts, policy: QueryPolicy, *, has_base: bool = False
    ) -> Self:
        """Encode the texts, find the words, and divide the non-members into groups.

        With a base, the expectation is learned from all users alike, so that all are compared.
        """
        whole = texts.together()
        encoded: Texts = encode(whole, target.vocabulary)
        targets: Any = encoded
        if target.source_vocabulary is not None:
            encoded = encode_pairs(whole, target.source_vocabulary, target.vocabulary)
            targets = encoded.targets
        queries = token_queries(targets, target.vocabulary)
        groups = texts.groups(seed=policy.seed)
        if has_base:
            groups = NonMembers(compared=tuple(sorted(set(texts.reference.users or ()))))
        known = groups.among(queries.names)
        audited = set(texts.texts.users or ())
        counted = range(len(queries.names)) if has_base else known.counted
        return cls(
            target=target,
            texts=texts,
            policy=policy,
            encoded=encoded,
            targets=targets,
            queries=queries.take(~np.isin(queries.users, known.counted)),
            counts=WordCounts.of_users(targets, counted, target.vocab_size),
            audited=tuple(n for n, name in enumerate(queries.names) if name in audited),
            known=known,
        )

    @property
    def owners(self) -> NDArray[np.int32]:
        """(t,) the user of each text, as an index of `queries.names`."""
        assert self.targets.users is not None
        return self.targets.users

    def chosen(self, shadows: ShadowRanks | None = None) -> NDArray[np.bool_]:
        """(w,) True for the words that the policy selects."""
        return self.policy.mask(self.queries, self.counts, shadows)

    @cached_property
    def words(self) -> list[list[str]]:
        """Each text as words, unknown ones included."""
        return [self.split(text) for text in self.texts.together()]

    def split(self, text: str) -> list[str]:
        """A text as the words of a remote model."""
        assert isinstance(self.target.vocabulary, WordVocabulary)
        return self.target.vocabulary.split(text)

    def contexts(self, queries: TokenQueries) -> tuple[list[Context], list[str]]:
        """What a remote model reads before each word; and the words."""
        sources = self.texts.together().sources if self.target.source_vocabulary else None
        contexts, words = [], []
        for text, at in zip(queries.texts.tolist(), queries.positions.tolist(), strict=True):
            source = None if sources is None else sources[text]
            contexts.append(Context(tuple(self.words[text][:at]), source))
            words.append(self.words[text][at])
        return contexts, words

    def key(self, sha256: str, queries: TokenQueries) -> str:
        """A name of ranks: a hash of a model's weights, of the texts and of the words."""
        digest = hashlib.sha256(sha256.encode())
        parts: list[Any] = [self.targets.tokens, self.targets.offsets]
        parts += [queries.texts, queries.positions]
        if not isinstance(self.encoded, EncodedCorpus):
            parts += [self.encoded.sources.tokens, self.encoded.sources.offsets]
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()[:16]

    def check(self, alpha: float) -> None:
        """Raise DataError for too few users or words, before anything is trained or queried."""
        counts, known = self.queries.counts(), self.known
        if not counts[list(self.audited)].any():
            raise DataError(
                "`texts` has no word that the model knows",
                remedy="Give texts in the model's language, split into words as it splits them, "
                "and a reference in that language.",
            )
        compared = int(np.count_nonzero(counts[list(known.compared)]))
        needed = calibration_needed(alpha)
        if compared < needed:
            users = len(known.counted) + len(known.fitted) + len(known.compared)
            people = users_needed(alpha) if known.fitted else needed
            raise DataError(
                f"`reference` has {users} users, which leaves {compared} to compare with; a "
                f"p-value of {alpha:g} needs {needed}",
                remedy=f"Give texts of {people} people or more (`reference`), split a text without "
                "users into more random users (`random_users`), or raise `alpha`.",
            )
        fitted = list(known.fitted or known.compared)
        words = int(self.policy.most(self.queries)[fitted].sum())
        if words < FEWEST_WORDS:
            raise DataError(
                f"{words} words of {len(fitted)} non-members to learn from are too few; "
                f"{FEWEST_WORDS} are needed",
                remedy="Give longer texts or more non-members (`reference`), or raise `queries` "
                "or `calls`.",
            )

    def checks_of_texts(
        self,
        texts: NDArray[np.integer],
        base: Floats | None = None,
        *,
        longest: int | None = None,
        answered: float = 1.0,
    ) -> tuple[Check, ...]:
        """The checks of the queried texts: read, independent, comparable.

        Args:
            texts: indices of the t texts that were queried.
            base: (t,) scores under a model that saw none of them.
            longest: tokens of a text that are read.
            answered: share of the queries that were answered.
        """
        # Of the side that was read less; words that were not selected do not count as unread.
        there = self.queries.positions < (longest or np.inf)
        users = len(self.queries.names)
        known = np.bincount(self.queries.users[there], minlength=users)
        lengths = np.diff(self.targets.offsets) - 1  # without the end of each text
        every = np.bincount(self.owners, lengths, minlength=users)
        sides = [list(self.audited), list(self.known.compared)]
        side = min(sides, key=lambda one: known[one].sum() / max(1, every[one].sum()))
        read = claims.read(round(answered * known[side].sum()), round(every[side].sum()))
        return read, self.texts.independent, self._comparable(texts, base)

    def _comparable(self, texts: NDArray[np.integer], base: Floats | None) -> Check:
        owners, read = self.owners[texts], list(self.texts.together())
        sides = [np.isin(owners, users) for users in (self.audited, self.known.compared)]
        own, rest = ([read[index] for index in texts[side]] for side in sides)
        units = (owners[sides[0]], owners[sides[1]])
        scores = None if base is None else (base[sides[0]], base[sides[1]])
        check = comparable_texts(own, rest, units=units, base=scores, seed=self.policy.seed)
        if check.state == "failed" or scores is None or len(self.audited) > 1:
            return check
        # One user has too few permutations for the level of a list.
        means = [scores[0].mean(keepdims=True), means_by_group(scores[1], units[1])]
        ranks = rankdata(np.concatenate(means))
        tail = min(ranks[0], ranks.size + 1 - ranks[0]) / ranks.size
        if 2 * tail > LEVEL:
            return check
        sentence = (
            "The base predicts the audited user's texts better or worse than those of nearly all "
            "reference users, without any training on them."
        )
        return Check("comparable", "failed", sentence)
