"""Which words an audit of users asks about, and whether that can come to anything."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vestige import _validate
from vestige.cli.audit_target import Target
from vestige.cli.audit_texts import AuditTexts
from vestige.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.membership.expected_rank import WordCounts
    from vestige.attacks.membership.non_members import NonMembers
    from vestige.attacks.membership.query_selection import Selection
    from vestige.attacks.membership.reference_models import References
    from vestige.data.encoded import EncodedCorpus
    from vestige.data.encoded_pairs import EncodedPairs
    from vestige.data.token_queries import TokenQueries
    from vestige.models.top_k import Context


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which words of everybody are asked.

    Attributes:
        how: by what they are chosen.
        queries: texts of a user at most.
        calls: words of a user at most.
        k: words that the target shows.
        rate: of false discoveries.
        seed: of everything that is drawn.
    """

    how: "Selection"
    queries: int | None
    calls: int | None
    k: int
    rate: float
    seed: int

    @classmethod
    def of(
        cls,
        how: "Selection | None",
        *,
        queries: int | None,
        calls: int | None,
        k: int | None,
        rate: float,
        seed: int,
        shadows: int,
        callable: bool,
    ) -> "Choice":
        """What the options say; k is 0 where the whole vocabulary is shown.

        Raises:
            ValueError: they contradict each other.
        """
        _validate.open_fraction(**{"--rate": rate})
        if queries is not None and calls is not None:
            raise ValueError(
                f"--calls must be left out with --queries, got {calls} and {queries}: texts are "
                "asked about word for word, or single words are"
            )
        limited = queries is not None or calls is not None
        if how is None:
            # Texts of informative words are short ones: whole texts are best drawn by lot.
            how = "all" if not limited else "informative" if shadows and calls else "random"
        if limited == (how == "all"):
            need = "another --select" if limited else "--queries or --calls"
            raise ValueError(f"--select {how} must come with {need}")
        if how == "rare-sum" and calls is not None:
            raise ValueError("--select rare-sum must come with --queries: a word has no sum")
        if how == "informative" and not shadows:
            raise ValueError(
                "--select informative must come with shadow models, which tell what is "
                "informative, got --shadows 0"
            )
        if callable and k is None:
            raise ValueError(
                "--top-k must be given for a callable: how many words does it list at most?"
            )
        return cls(how=how, queries=queries, calls=calls, k=k or 0, rate=rate, seed=seed)

    def of_target(self, vocab_size: int, *, service: bool) -> "Choice":
        """With the target's k.

        Raises:
            ValueError: a model of ours cannot show so many words.
        """
        if not service and self.k > vocab_size:
            raise ValueError(f"--top-k must lie in [1, {vocab_size}], got {self.k}")
        return replace(self, k=self.k or vocab_size)

    def worth(
        self, asked: "TokenQueries", counts: "WordCounts", references: "References | None"
    ) -> "NDArray[np.float64]":
        """(w,) what asking each word is worth."""
        import numpy as np

        from vestige.attacks.membership.query_selection import worth_of

        if self.how != "informative" or references is None:
            return -counts.of_words(asked).astype(np.float64)
        typical = references.typical_ranks(asked, seed=self.seed)
        return worth_of(
            asked, "informative", frequency=counts.words, reference_ranks=typical, k=self.k
        )

    def mask(self, asked: "TokenQueries", worth: "NDArray[np.float64]") -> "NDArray[np.bool_]":
        """(w,) True for the words to ask, chosen by one rule for everybody."""
        from vestige.attacks.membership.query_selection import select_calls, select_texts

        if self.queries is not None:
            return select_texts(asked, self.how, self.queries, worth=worth, seed=self.seed)
        limit = self.calls or len(asked)
        return select_calls(asked, self.how, limit, worth=worth, seed=self.seed)

    def most(self, asked: "TokenQueries") -> "NDArray[np.int64]":
        """(u,) words of each user that can be chosen at most."""
        import numpy as np

        if self.calls is not None:
            return np.minimum(asked.counts(), self.calls)
        if self.queries is None:
            return asked.counts()
        longest = self.mask(asked, self._lengths(asked)) if self.how != "random" else None
        return asked.counts() if longest is None else asked.take(longest).counts()

    def _lengths(self, asked: "TokenQueries") -> "NDArray[np.float64]":
        import numpy as np

        _, inverse, counts = np.unique(asked.texts, return_inverse=True, return_counts=True)
        return np.asarray(counts[inverse], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class AuditInputs:
    """The texts as ids, the words that can be asked, and who is who.

    Attributes:
        texts: ids of all texts by the target's vocabularies.
        asked: w words.
        counts: of the words of reference users who play no other part.
        audited: users, as places in `asked.names`.
        known: reference users, likewise.
        target: what is asked.
        parts: the texts themselves.
    """

    texts: "EncodedCorpus | EncodedPairs"
    asked: "TokenQueries"
    counts: "WordCounts"
    audited: tuple[int, ...]
    known: "NonMembers"
    target: Target
    parts: AuditTexts

    @classmethod
    def of(cls, target: Target, parts: AuditTexts, *, seed: int) -> "AuditInputs":
        """Encode, find the words, and draw who of the reference plays which part.

        Raises:
            DataError: no word of the texts is known.
        """
        import numpy as np

        from vestige.attacks.membership.expected_rank import WordCounts
        from vestige.attacks.membership.non_members import NonMembers
        from vestige.data.encoded import encode
        from vestige.data.encoded_pairs import encode_pairs
        from vestige.data.token_queries import token_queries

        whole = parts.together()
        if target.source_vocabulary is None:
            texts: Any = encode(whole, target.vocabulary)
        else:
            texts = encode_pairs(whole, target.source_vocabulary, target.vocabulary)
        targets = texts if target.source_vocabulary is None else texts.targets
        asked = token_queries(targets, target.vocabulary)
        inside = set(parts.texts.users or ())
        audited = tuple(n for n, name in enumerate(asked.names) if name in inside)
        known = NonMembers.named(parts.groups(seed=seed), asked.names)
        return cls(
            texts=texts,
            asked=asked.take(~np.isin(asked.users, known.counted)),
            counts=WordCounts.of_users(targets, known.counted, target.vocab_size),
            audited=audited,
            known=known,
            target=target,
            parts=parts,
        )

    @property
    def targets(self) -> "EncodedCorpus":
        """Ids of what is predicted."""
        from vestige.data.encoded import EncodedCorpus

        return self.texts if isinstance(self.texts, EncodedCorpus) else self.texts.targets

    @cached_property
    def words(self) -> list[list[str]]:
        """Every text as the words that its ids stand for, known or not."""
        from vestige.data.vocabulary import WordVocabulary

        vocabulary = self.target.vocabulary
        if not isinstance(vocabulary, WordVocabulary):
            raise TypeError(f"a callable is asked in words, got {type(vocabulary).__name__}")
        return [vocabulary.split(text) for text in self.parts.together()]

    def contexts(self, asked: "TokenQueries") -> "tuple[list[Context], list[str]]":
        """What a service is shown before each word, in the words of the texts; and the words."""
        from vestige.models.top_k import Context

        sources = self.parts.together().sources if self.target.source_vocabulary else None
        contexts, words = [], []
        for text, place in zip(asked.texts.tolist(), asked.positions.tolist(), strict=True):
            source = None if sources is None else sources[text]
            contexts.append(Context(tuple(self.words[text][:place]), source))
            words.append(self.words[text][place])
        return contexts, words

    def check(self, choice: Choice) -> None:
        """Refuse an audit that could not come to anything, before anything is trained or asked.

        Raises:
            DataError: users or words are too few.
        """
        import numpy as np

        from vestige.attacks.membership.expected_rank import FEWEST_WORDS
        from vestige.attacks.membership.non_members import users_needed
        from vestige.metrics.conformal import calibration_needed

        counts = self.asked.counts()
        if not counts[list(self.audited)].any():
            raise DataError(
                "--texts hold no word that can be asked about",
                remedy="Give texts in the language of the model, split into words as it splits "
                "them, and a reference in that language.",
            )
        compared = int(np.count_nonzero(counts[list(self.known.compared)]))
        needed = calibration_needed(choice.rate)
        if compared < needed:
            users = len(self.known.counted) + len(self.known.fitted) + len(self.known.compared)
            raise DataError(
                f"the {users} users of --reference leave {compared} with words to ask about to "
                f"compare with: it takes {needed} before a p-value can be {choice.rate:g}",
                remedy=f"Give texts of {users_needed(choice.rate)} people or more (--reference), "
                "split a text of nobody into more users (--artificial), or take a larger --rate.",
            )
        fitted = list(self.known.fitted)
        words = int(choice.most(self.asked)[fitted].sum())
        if words < FEWEST_WORDS:
            raise DataError(
                f"{words} words of the {len(fitted)} users of --reference that the expectation is "
                f"learnt from are too few, it takes {FEWEST_WORDS}",
                remedy="Give longer or more texts of people who are not in the training data "
                "(--reference), or raise --queries or --calls.",
            )
