"""The words of an audit of users: texts as ids, parts of users, and words to query."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vestige.audits.membership.features import ShadowRanks, Texts, WordCounts
from vestige.audits.membership.groups import NonMembers, UserTexts, users_needed
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.target import Target
from vestige.audits.membership.word_scores import FEWEST_WORDS
from vestige.data.encoded import EncodedCorpus, encode, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.metrics.tests import calibration_needed
from vestige.models.top_k import Context


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

        Args:
            target: its vocabulary determines the words.
            texts: of all users.
            policy: its seed is that of the groups.
            has_base: the expectation is learned from all users alike, so that all non-members are
                compared.
        """
        whole, encoded = texts.together(), None
        if target.source_vocabulary is None:
            targets = encode(whole, target.vocabulary)
        else:
            encoded = encode_pairs(whole, target.source_vocabulary, target.vocabulary)
            targets = encoded.targets
        queries = token_queries(targets, target.vocabulary)
        groups = texts.groups(seed=policy.seed)
        if has_base:
            groups = NonMembers(compared=tuple(sorted(set(texts.reference.users or ()))))
        known = groups.among(queries.names)
        audited = set(texts.texts.users or ())
        return cls(
            target=target,
            texts=texts,
            policy=policy,
            encoded=encoded or targets,
            targets=targets,
            queries=queries.take(~np.isin(queries.users, known.counted)),
            counts=WordCounts.of_users(
                targets,
                range(len(queries.names)) if has_base else known.counted,
                target.vocab_size,
            ),
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
        """Refuse an audit that cannot succeed, before anything is trained or queried.

        Raises:
            DataError: there are too few users or words.
        """
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
