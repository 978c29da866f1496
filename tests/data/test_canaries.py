from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.canaries.phrases import (
    PATTERNS,
    frequency_canaries,
    given_canaries,
)
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.lexicon import Lexicon
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.data.word_list import TEMPLATES, WORDS_BY_ROLE
from vestige.errors import DataError


def naive_levels(corpus: Corpus) -> dict[str, int]:
    """Quintile of each word, by sorting all of them."""
    counts = Counter(word for text in corpus for word in text.split())
    ranked = sorted(counts, key=lambda word: (counts[word], word))
    return {word: 5 * rank // len(ranked) for rank, word in enumerate(ranked)}


@pytest.fixture(scope="module")
def levels(corpus: Corpus) -> dict[str, int]:
    return naive_levels(corpus)


@pytest.fixture(scope="module")
def canaries(corpus: Corpus, vocabulary: WordVocabulary) -> tuple[Canary, ...]:
    return frequency_canaries(corpus, vocabulary, copies=10, controls=2, seed=0)


def by_level(canary: Canary, levels: dict[str, int]) -> list[int]:
    return [levels[word] for word in canary.phrase.split()]


def test_all_low_takes_every_word_from_the_rarest_fifth(
    canaries: tuple[Canary, ...], levels: dict[str, int]
) -> None:
    assert [by_level(c, levels) for c in canaries if c.pattern == "all-low"] == [[0] * 5] * 3


def test_low_to_high_and_high_to_low_climb_and_fall_through_the_fifths(
    canaries: tuple[Canary, ...], levels: dict[str, int]
) -> None:
    for canary in canaries:
        if canary.pattern == "low-to-high":
            assert by_level(canary, levels) == [0, 1, 2, 3, 4]
        if canary.pattern == "high-to-low":
            assert by_level(canary, levels) == [4, 3, 2, 1, 0]


def test_mixed_takes_one_word_of_each_fifth_in_no_order(
    canaries: tuple[Canary, ...], levels: dict[str, int]
) -> None:
    for canary in canaries:
        if canary.pattern == "mixed":
            found = by_level(canary, levels)
            assert sorted(found) == [0, 1, 2, 3, 4]
            assert found not in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])


def test_each_pattern_comes_once_planted_and_as_often_control_as_asked(
    canaries: tuple[Canary, ...],
) -> None:
    assert [c.pattern for c in canaries] == list(PATTERNS) * 3
    assert [c.copies for c in canaries] == [10] * 4 + [0] * 8
    assert [c.control for c in canaries] == [False] * 4 + [True] * 8


def test_no_word_comes_twice_in_a_set(canaries: tuple[Canary, ...]) -> None:
    words = [word for canary in canaries for word in canary.phrase.split()]
    assert len(words) == len(set(words)) == 60


def test_no_phrase_stands_in_the_corpus(canaries: tuple[Canary, ...], corpus: Corpus) -> None:
    text = "\n".join(corpus)
    assert not any(canary.phrase in text for canary in canaries)


def test_phrases_follow_a_template_where_the_words_allow(corpus: Corpus) -> None:
    (canary, *_) = frequency_canaries(corpus, patterns=["mixed"], copies=1, seed=3)
    words = canary.phrase.split()
    assert any(
        all(word in WORDS_BY_ROLE[role] for word, role in zip(words, roles, strict=True))
        for roles in TEMPLATES[5]
    )


def test_frequencies_are_the_counts_of_the_words(
    canaries: tuple[Canary, ...], corpus: Corpus
) -> None:
    counts = Counter(word for text in corpus for word in text.split())
    for canary in canaries:
        assert canary.frequencies == tuple(counts[word] for word in canary.phrase.split())


def test_the_seed_decides_the_words(corpus: Corpus, vocabulary: WordVocabulary) -> None:
    def phrases(seed: int) -> list[str]:
        made = frequency_canaries(corpus, vocabulary, copies=1, seed=seed)
        return [canary.phrase for canary in made]

    assert phrases(5) == phrases(5)
    assert not set(phrases(5)) & set(phrases(6))


def test_more_controls_leave_the_planted_alone(
    corpus: Corpus, vocabulary: WordVocabulary, canaries: tuple[Canary, ...]
) -> None:
    assert frequency_canaries(corpus, vocabulary, copies=10, seed=0) == canaries[:8]


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 9), st.sampled_from(PATTERNS), st.integers(0, 3))
def test_phrases_have_the_length_asked_for(length: int, pattern: str, seed: int) -> None:
    corpus = Corpus.from_texts([f"{w} {w}s" for w in WORDS_BY_ROLE["verb"][:60]] + ["a a b"])
    made = frequency_canaries(corpus, patterns=[pattern], copies=1, length=length, seed=seed)
    assert all(len(canary.phrase.split()) == length for canary in made)


def test_a_quintile_without_listed_words_gives_any_of_its_words() -> None:
    texts = [f"{word * 3} " * (i + 1) for i, word in enumerate("abcdefghijklmnopqrstuvwxyz")]
    (canary, _) = frequency_canaries(
        Corpus.from_texts(texts), patterns=["low-to-high"], copies=1, seed=0
    )
    counts = [ord(word[0]) - ord("a") + 1 for word in canary.phrase.split()]
    assert all(a < b for a, b in pairwise(counts))


def test_numbers_punctuation_and_special_tokens_are_never_used() -> None:
    junk = ["<unk>", "<eos>", "12", ",", "N", "'s", "3rd", "a", "--"]
    good = [f"{a}{b}x" for a in "abcdef" for b in "abcdef"]
    corpus = Corpus.from_texts([" ".join(junk * 3 + good)])
    made = frequency_canaries(corpus, patterns=["random"] * 3, copies=1, seed=1)
    assert {word for canary in made for word in canary.phrase.split()} <= set(good)


def test_random_canaries_come_planted_then_control(corpus: Corpus) -> None:
    made = frequency_canaries(
        corpus, patterns=["random"] * 4, copies=2, controls=2, length=6, seed=0
    )
    words = [word for canary in made for word in canary.phrase.split()]
    assert [c.copies for c in made] == [2] * 4 + [0] * 8
    assert {c.pattern for c in made} == {"random"}
    assert len(words) == len(set(words)) == 72


def test_too_few_words_are_said_so() -> None:
    corpus = Corpus.from_texts(["ant bee cat dog eel fox gnu hen"])
    with pytest.raises(DataError) as caught:
        frequency_canaries(corpus, copies=1, seed=0)
    assert caught.value.problem == (
        "the corpus has 2 words of three letters or more in the least frequent fifth of its "
        "vocabulary, and these canaries need 16 different ones"
    )
    assert "--length" in caught.value.remedy
    assert "larger corpus" in caught.value.remedy
    with pytest.raises(DataError, match=r"has 8 words .* need 30 different ones"):
        frequency_canaries(corpus, patterns=["random"] * 3, copies=1, seed=0)


def test_a_corpus_that_holds_every_phrase_is_given_up() -> None:
    corpus = Corpus.from_texts(["ant bee ant", "cow dog cow ant cow bee dog bee", "ant dog ant"])
    with pytest.raises(DataError, match="contains all"):
        frequency_canaries(corpus, patterns=["random"], copies=1, length=2, seed=0)


def test_a_given_phrase_stays_as_given(corpus: Corpus, vocabulary: WordVocabulary) -> None:
    a, b, c = vocabulary.words[5], vocabulary.words[50], vocabulary.words[500]
    phrase = f"{a} {c} {b} {c}"
    planted, control = given_canaries(
        [f"  {a}  {c}\t{b} {c} "], corpus, vocabulary, copies=3, seed=0
    )
    assert (planted.phrase, planted.pattern, planted.copies) == (phrase, "given", 3)
    assert control.control
    assert not set(control.phrase.split()) & set(phrase.split())


def test_a_control_for_a_given_phrase_has_words_of_the_same_fifths(
    corpus: Corpus, vocabulary: WordVocabulary, levels: dict[str, int]
) -> None:
    phrase = " ".join(vocabulary.words[i] for i in (5, 500, 300, 100))
    planted, *controls = given_canaries([phrase], corpus, vocabulary, copies=1, controls=4, seed=0)
    assert len(controls) == 4
    assert all(by_level(c, levels) == by_level(planted, levels) for c in controls)


def test_subwords_may_be_given_any_phrase(corpus: Corpus) -> None:
    vocabulary = SubwordVocabulary.train_bpe(corpus, size=300)
    word = next(iter(corpus)).split()[0]
    phrase = f"the Xyzzy pin is 4917, {word}"
    planted, control = given_canaries([phrase], corpus, vocabulary, copies=1, seed=0)
    assert planted.frequencies[:-1] == (0, 0, 0, 0, 0)
    assert planted.frequencies[-1] > 0
    assert len(control.phrase.split()) == 6


def test_words_that_a_word_vocabulary_lacks_are_named(
    corpus: Corpus, vocabulary: WordVocabulary
) -> None:
    with pytest.raises(DataError, match=r"phrase 1 has words .* lacks: 2, 3 of 3") as caught:
        given_canaries([f"{vocabulary.words[4]} xyzzy 4917"], corpus, vocabulary, copies=1, seed=0)
    assert "subword" in caught.value.remedy


def test_a_phrase_that_the_corpus_holds_is_refused(corpus: Corpus) -> None:
    phrase = " ".join(next(iter(corpus)).split()[:4])
    with pytest.raises(DataError, match="already contains phrase 1 "):
        given_canaries([phrase.upper()], corpus, copies=1, seed=0)


@pytest.mark.parametrize("phrases", [[], [""], ["a", " "]])
def test_an_empty_phrase_is_refused(phrases: list[str], corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="none of them empty"):
        given_canaries(phrases, corpus, copies=1, seed=0)


@pytest.mark.parametrize("phrases", [["a b", "a b"], ["a b", "x A  B y"]])
def test_phrases_that_stand_in_one_another_are_refused(phrases: list[str], corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="must not contain one another"):
        given_canaries(phrases, corpus, copies=1, seed=0)


@pytest.mark.parametrize(
    "arguments",
    [{"length": 1}, {"patterns": ["rising"]}],
)
def test_a_bad_argument_is_named(arguments: dict[str, object], corpus: Corpus) -> None:
    name = next(iter(arguments)).removesuffix("s")
    with pytest.raises(ValueError, match=name):
        frequency_canaries(corpus, seed=0, **{"copies": 1, **arguments})  # type: ignore[arg-type]


def test_levels_split_the_words_in_five_equal_parts(
    corpus: Corpus, vocabulary: WordVocabulary, levels: dict[str, int]
) -> None:
    lexicon = Lexicon.of(corpus, vocabulary)
    assert {word: lexicon.level(word) for word in lexicon.counts} == levels
    sizes = [sum(level == i for level in levels.values()) for i in range(5)]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("ab"), max_size=9).map(" ".join), max_size=6),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(" ".join),
)
def test_occurrences_are_what_reading_gives(texts: list[str], phrase: str) -> None:
    def read(text: str) -> int:
        words, wanted, found = text.split(), phrase.split(), 0
        while words:
            here = words[: len(wanted)] == wanted
            found += here
            words = words[len(wanted) if here else 1 :]
        return found

    assert occurrences(Corpus.from_texts(texts), [phrase]) == [sum(map(read, texts))]


def test_occurrences_take_signs_literally() -> None:
    corpus = Corpus.from_texts(["cost: $5 (a+b)!", "xcost: $5 (a+b)"])
    assert occurrences(corpus, ["cost: $5 (a+b)", ".*", "cost"]) == [1, 0, 1]
    assert occurrences(corpus, []) == []


def test_the_word_lists_have_no_doubles_and_no_capitals() -> None:
    for words in WORDS_BY_ROLE.values():
        assert len(words) == len(set(words)) > 200
        assert all(word.isalpha() and word.islower() for word in words)


def test_every_template_has_its_length() -> None:
    for length, templates in TEMPLATES.items():
        assert all(len(roles) == length for roles in templates)
        assert all(set(roles) <= WORDS_BY_ROLE.keys() for roles in templates)
