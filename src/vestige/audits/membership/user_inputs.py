"""Inputs of an audit of users: the model, encoded texts, groups of users, and words to query."""

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
    MIN_WORDS,
    EncodedTexts,
    Floats,
    ShadowRanks,
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
        task: what it predicts.
        vocabulary: its words; for a remote model, the most frequent ones of some reference texts.
        source_vocabulary: of the texts that it answers or translates; None for next words.
        vocab_size: words that it can show.
        model: the network; None for a remote model.
        remote: the function or the server's address; None for a local model.
        record: its provenance.
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
    def local(cls, source: Any, model: Any, record: Any) -> Self:
        """A model of next words, translations or dialogue, loaded from `source`."""
        source_vocabulary = getattr(model, "source_vocabulary", None)
        task: Task = "next-word"
        if source_vocabulary is not None:
            task = "translation" if model.config.attention else "dialogue"
        is_path = isinstance(source, str | PathLike)
        return cls(
            name=fspath(source) if is_path else f"<{type(source).__name__}>",
            task=task,
            vocabulary=model.vocabulary,
            source_vocabulary=source_vocabulary,
            vocab_size=model.vocab_size,
            model=model,
            record=record,
        )


def parse_remote(model: Any) -> Remote | None:
    """The function, or the address of the server, that MODEL names; None for a local model."""
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


def load_local_target(run: "Session", model: Any) -> Target:
    """Load a local model."""
    if warning := useless_model(model):
        run.log(warning)
    try:
        loaded: Any = run.model("target", model)
    except AccessDenied as denied:
        try:
            loaded = load_seq2seq(str(model), device=run.device)
        except ModelError:
            raise denied from None
        run.record_model("target", model, loaded)
    return Target.local(model, loaded, run.models["target"])


def remote_target(
    run: "Session", model: Any, remote: Remote, texts: Corpus, options: QueryOptions
) -> Target:
    """A remote model with the most frequent words of some texts as its vocabulary.

    The texts are of non-members without another part in the audit. Texts of compared users would
    favour the words of some of these users over those of others.
    """
    size, tokenise = options.vocabulary_size, options.tokenizer
    is_server = isinstance(remote, EndpointAddress)
    name = model if isinstance(model, str) or is_server else None
    name = str(name or getattr(remote, "__qualname__", type(remote)))
    vocabulary = WordVocabulary.build(texts, size=size, tokenise=tokenise)
    source_vocabulary = None
    if options.task not in (None, "next-word"):
        source_vocabulary = WordVocabulary.build(sources_of(texts), size=size, tokenise=tokenise)
    run.models["target"] = {
        "path": name,
        "architecture": "endpoint" if is_server else "callable",
        "vocabulary": vocabulary.fingerprint(),
    }
    return Target(
        name=name,
        task=options.task or "next-word",
        vocabulary=vocabulary,
        source_vocabulary=source_vocabulary,
        vocab_size=len(vocabulary),
        remote=remote,
        record=run.models["target"],
    )


@dataclass(frozen=True, kw_only=True)
class UserInputs:
    """Inputs of an audit of users.

    Attributes:
        target: the audited model.
        texts: the texts of audited users and of non-members.
        policy: selects the queried words.
        encoded: all texts as token ids, the audited first.
        targets: the texts whose words are queried: `encoded`, or the targets of its pairs.
        queries: w words that can be queried; none of the counted users.
        counts: word counts of the counted users; with a base, of all users.
        audited: audited users, as indices of `queries.names`.
        non_members: groups of non-members, as indices of `queries.names`.
    """

    target: Target
    texts: UserTexts
    policy: QueryPolicy
    encoded: EncodedTexts
    targets: EncodedCorpus
    queries: TokenQueries
    counts: WordCounts
    audited: tuple[int, ...]
    non_members: NonMembers[int]

    @classmethod
    def of(
        cls, target: Target, texts: UserTexts, policy: QueryPolicy, *, has_base: bool = False
    ) -> Self:
        """Encode the texts, find the words, and divide the non-members into groups.

        With a base, all non-members are compared: the expectation is learned from all users alike.
        """
        corpus = texts.all_texts()
        encoded: EncodedTexts = encode(corpus, target.vocabulary)
        targets: Any = encoded
        if target.source_vocabulary is not None:
            encoded = encode_pairs(corpus, target.source_vocabulary, target.vocabulary)
            targets = encoded.targets
        queries = token_queries(targets, target.vocabulary)
        groups = texts.groups(seed=policy.seed)
        if has_base:
            groups = NonMembers(compared=tuple(sorted(set(texts.reference.users or ()))))
        non_members = groups.as_indices(queries.names)
        audited = set(texts.texts.users or ())
        counted = range(len(queries.names)) if has_base else non_members.counted
        return cls(
            target=target,
            texts=texts,
            policy=policy,
            encoded=encoded,
            targets=targets,
            queries=queries.take(~np.isin(queries.users, non_members.counted)),
            counts=WordCounts.of_users(targets, counted, target.vocab_size),
            audited=tuple(n for n, name in enumerate(queries.names) if name in audited),
            non_members=non_members,
        )

    @property
    def text_users(self) -> NDArray[np.int32]:
        """(t,) the user of each text, as an index of `queries.names`."""
        assert self.targets.users is not None
        return self.targets.users

    def selected(self, shadows: ShadowRanks | None = None) -> NDArray[np.bool_]:
        """(w,) a mask of the words that the policy selects."""
        return self.policy.selected(self.queries, self.counts, shadows)

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each text, unknown ones included."""
        return [self.split(text) for text in self.texts.all_texts()]

    def split(self, text: str) -> list[str]:
        """The words of a text, split for a remote model."""
        assert isinstance(self.target.vocabulary, WordVocabulary)
        return self.target.vocabulary.split(text)

    def contexts(self, queries: TokenQueries) -> tuple[list[Context], list[str]]:
        """What a remote model reads before each word; and the words."""
        sources = self.texts.all_texts().sources if self.target.source_vocabulary else None
        contexts, words = [], []
        for text, position in zip(queries.texts.tolist(), queries.positions.tolist(), strict=True):
            source = None if sources is None else sources[text]
            contexts.append(Context(tuple(self.words[text][:position]), source))
            words.append(self.words[text][position])
        return contexts, words

    def key(self, sha256: str, queries: TokenQueries) -> str:
        """The key of ranks in the store: a hash of model weights, texts and queried words."""
        digest = hashlib.sha256(sha256.encode())
        parts: list[Any] = [self.targets.tokens, self.targets.offsets]
        parts += [queries.texts, queries.positions]
        if not isinstance(self.encoded, EncodedCorpus):
            parts += [self.encoded.sources.tokens, self.encoded.sources.offsets]
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()[:16]

    def require_enough(self, alpha: float) -> None:
        """Raise DataError for too few users or words, before anything is trained or queried."""
        counts, groups = self.queries.counts(), self.non_members
        if not counts[list(self.audited)].any():
            raise DataError(
                "`texts` has no word that the model knows",
                remedy="Give texts in the model's language, split into words as it splits them, "
                "and a reference in that language.",
            )
        compared = int(np.count_nonzero(counts[list(groups.compared)]))
        needed = calibration_needed(alpha)
        if compared < needed:
            users = len(groups.counted) + len(groups.fitted) + len(groups.compared)
            people = users_needed(alpha) if groups.fitted else needed
            raise DataError(
                f"`reference` has {users} users, which leaves {compared} to compare with; a "
                f"p-value of {alpha:g} needs {needed}",
                remedy=f"Give texts of {people} people or more (`reference`), split a text without "
                "users into more random users (`random_users`), or raise `alpha`.",
            )
        fitted = list(groups.fitted or groups.compared)
        words = int(self.policy.max_words(self.queries)[fitted].sum())
        if words < MIN_WORDS:
            raise DataError(
                f"{words} words of {len(fitted)} non-members to learn from are too few; "
                f"{MIN_WORDS} are needed",
                remedy="Give longer texts or more non-members (`reference`), or raise `queries` "
                "or `calls`.",
            )

    def text_checks(
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
        in_reach = self.queries.positions < (longest or np.inf)
        users = len(self.queries.names)
        readable = np.bincount(self.queries.users[in_reach], minlength=users)
        lengths = np.diff(self.targets.offsets) - 1  # without the end of each text
        total = np.bincount(self.text_users, lengths, minlength=users)
        side = min(
            (list(self.audited), list(self.non_members.compared)),
            key=lambda group: readable[group].sum() / max(1, total[group].sum()),
        )
        read = claims.read(round(answered * readable[side].sum()), round(total[side].sum()))
        return read, self.texts.independent, self._comparable(texts, base)

    def _comparable(self, texts: NDArray[np.integer], base: Floats | None) -> Check:
        """The check "comparable" of some texts, by their content and by their scores."""
        users, contents = self.text_users[texts], list(self.texts.all_texts())
        sides = [np.isin(users, group) for group in (self.audited, self.non_members.compared)]
        audited, compared = ([contents[index] for index in texts[side]] for side in sides)
        units = (users[sides[0]], users[sides[1]])
        scores = None if base is None else (base[sides[0]], base[sides[1]])
        check = comparable_texts(audited, compared, units=units, base=scores, seed=self.policy.seed)
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
