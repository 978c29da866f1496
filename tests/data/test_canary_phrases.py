"""Canaries of running text: frequencies and order of their words, occurrences and controls."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.canaries.phrases import PATTERNS, frequency_canaries, given_canaries
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import shuffled
from vestige.data.corpus import Corpus
from vestige.data.lexicon import TEMPLATES, WORDS_BY_ROLE, Lexicon
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError


@pytest.fixture(scope="module")
def counts(corpus):
    return Counter(word for text in corpus for word in text.split())


@pytest.fixture(scope="module")
def levels(counts):
    """Quintile of each word, by sorting all of them."""
    ranked = sorted(counts, key=lambda word: (counts[word], word))
    return {word: 5 * rank // len(ranked) for rank, word in enumerate(ranked)}


@pytest.fixture(scope="module")
def canaries(corpus, vocabulary):
    return frequency_canaries(corpus, vocabulary, copies=10, controls=2, seed=0)


def by_level(canary, levels):
    return [levels[word] for word in canary.phrase.split()]


def words_of(canaries):
    return [word for canary in canaries for word in canary.phrase.split()]


# Words of certain frequencies


def test_patterns_sample_words_from_their_quintiles(canaries, levels):
    assert [c.pattern for c in canaries] == list(PATTERNS) * 3
    rising, falling = [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]
    expected = {"all-low": [0] * 5, "low-to-high": rising, "high-to-low": falling}
    for canary in canaries:
        quintiles = by_level(canary, levels)
        if canary.pattern == "mixed":
            assert sorted(quintiles) == rising
            assert quintiles not in (rising, falling)
        else:
            assert quintiles == expected[canary.pattern]


def test_levels_are_quintiles(corpus, vocabulary, levels):
    lexicon = Lexicon.of(corpus, vocabulary)
    assert {word: lexicon.level(word) for word in lexicon.counts} == levels
    sizes = Counter(levels.values()).values()
    assert max(sizes) - min(sizes) <= 1


def test_planted_canaries_precede_controls_and_no_word_repeats(
    canaries, corpus, vocabulary, counts
):
    assert [c.copies for c in canaries] == [10] * 4 + [0] * 8
    assert [c.control for c in canaries] == [False] * 4 + [True] * 8
    assert len(words_of(canaries)) == len(set(words_of(canaries))) == 60
    text = "\n".join(corpus)
    assert not any(canary.phrase in text for canary in canaries)
    for canary in canaries:
        assert canary.frequencies == tuple(counts[word] for word in canary.phrase.split())
    # More controls do not change the planted ones.
    assert frequency_canaries(corpus, vocabulary, copies=10, seed=0) == canaries[:8]


def test_phrases_follow_a_template_of_parts_of_speech(corpus):
    (canary, *_) = frequency_canaries(corpus, patterns=["mixed"], copies=1, seed=3)
    words = canary.phrase.split()
    assert any(
        all(word in WORDS_BY_ROLE[role] for word, role in zip(words, roles, strict=True))
        for roles in TEMPLATES[5]
    )
    for length, templates in TEMPLATES.items():
        assert all(len(roles) == length and set(roles) <= set(WORDS_BY_ROLE) for roles in templates)
    for listed in WORDS_BY_ROLE.values():
        assert len(listed) == len(set(listed)) > 200
        assert all(word.isalpha() and word.islower() for word in listed)


def test_words_depend_on_the_seed(corpus, vocabulary):
    first, same, other = (
        {c.phrase for c in frequency_canaries(corpus, vocabulary, copies=1, seed=seed)}
        for seed in (5, 5, 6)
    )
    assert first == same
    assert not first & other


@settings(max_examples=15)
@given(st.integers(2, 9), st.sampled_from(PATTERNS), st.integers(0, 3))
def test_phrases_have_the_requested_length(length, pattern, seed):
    corpus = Corpus.from_texts([f"{w} {w}s" for w in WORDS_BY_ROLE["verb"][:60]] + ["a a b"])
    canaries = frequency_canaries(corpus, patterns=[pattern], copies=1, length=length, seed=seed)
    assert all(len(canary.phrase.split()) == length for canary in canaries)


def test_other_alphabetic_words_are_used_if_no_listed_word_occurs():
    texts = [f"{word * 3} " * (i + 1) for i, word in enumerate("abcdefghijklmnopqrstuvwxyz")]
    options = {"patterns": ["low-to-high"], "copies": 1, "seed": 0}
    (canary, _) = frequency_canaries(Corpus.from_texts(texts), **options)
    assert all(a < b for a, b in pairwise(word[0] for word in canary.phrase.split()))
    junk = ["<unk>", "<eos>", "12", ",", "N", "'s", "3rd", "a", "--"]
    good = [f"{a}{b}x" for a in "abcdef" for b in "abcdef"]
    corpus = Corpus.from_texts([" ".join(junk * 3 + good)])
    canaries = frequency_canaries(corpus, patterns=["random"] * 3, copies=1, seed=1)
    assert set(words_of(canaries)) <= set(good)


def test_too_few_words_and_invalid_arguments_are_refused(corpus):
    few = Corpus.from_texts(["ant bee cat dog eel fox gnu hen"])
    with pytest.raises(DataError) as caught:
        frequency_canaries(few, copies=1, seed=0)
    assert "2 words of three letters or more in the least frequent fifth" in caught.value.problem
    assert "need 16 different ones" in caught.value.problem
    assert "--length" in caught.value.remedy
    with pytest.raises(DataError, match=r"has 8 words .* need 30 different ones"):
        frequency_canaries(few, patterns=["random"] * 3, copies=1, seed=0)
    full = Corpus.from_texts(["ant bee ant", "cow dog cow ant cow bee dog bee", "ant dog ant"])
    with pytest.raises(DataError, match="contains all"):
        frequency_canaries(full, patterns=["random"], copies=1, length=2, seed=0)
    for arguments, name in (({"length": 1}, "length"), ({"patterns": ["rising"]}, "pattern")):
        with pytest.raises(ValueError, match=name):
            frequency_canaries(corpus, seed=0, copies=1, **arguments)


# Given phrases


def test_a_given_phrase_is_unchanged_except_for_blanks(corpus, vocabulary):
    a, b, c = vocabulary.words[5], vocabulary.words[50], vocabulary.words[500]
    phrase = f"{a} {c} {b} {c}"
    spaced = f"  {a}  {c}\t{b} {c} "
    planted, control = given_canaries([spaced], corpus, vocabulary, copies=3, seed=0)
    assert (planted.phrase, planted.pattern, planted.copies) == (phrase, "given", 3)
    assert control.control
    assert not set(control.phrase.split()) & set(phrase.split())


def test_a_control_for_a_given_phrase_has_words_of_the_same_quintiles(corpus, vocabulary, levels):
    phrase = " ".join(vocabulary.words[i] for i in (5, 500, 300, 100))
    planted, *controls = given_canaries([phrase], corpus, vocabulary, copies=1, controls=4, seed=0)
    assert len(controls) == 4
    assert all(by_level(c, levels) == by_level(planted, levels) for c in controls)


def test_unknown_words_may_be_planted_for_a_subword_vocabulary(corpus):
    vocabulary = SubwordVocabulary.train_bpe(corpus, size=300)
    phrase = f"the Xyzzy pin is 4917, {next(iter(corpus)).split()[0]}"
    planted, control = given_canaries([phrase], corpus, vocabulary, copies=1, seed=0)
    assert planted.frequencies[:-1] == (0, 0, 0, 0, 0)
    assert planted.frequencies[-1] > 0
    assert len(control.phrase.split()) == 6


def test_phrases_that_cannot_be_planted_are_refused(corpus, vocabulary):
    with pytest.raises(DataError, match=r"phrase 1 has words .* lacks: 2, 3 of 3") as caught:
        given_canaries([f"{vocabulary.words[4]} xyzzy 4917"], corpus, vocabulary, copies=1, seed=0)
    assert "subword" in caught.value.remedy
    present = " ".join(next(iter(corpus)).split()[:4])
    with pytest.raises(DataError, match="already contains phrase 1 "):
        given_canaries([present.upper()], corpus, copies=1, seed=0)
    for phrases, message in (
        ([], "none of them empty"),
        (["a", " "], "none of them empty"),
        (["a b", "x A  B y"], "must not contain one another"),
    ):
        with pytest.raises(ValueError, match=message):
            given_canaries(phrases, corpus, copies=1, seed=0)


# Occurrences


@given(
    st.lists(st.lists(st.sampled_from("ab"), max_size=9).map(" ".join), max_size=6),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(" ".join),
)
def test_occurrences_agree_with_a_naive_count(texts, phrase):
    def naive_count(text):
        words, wanted, count = text.split(), phrase.split(), 0
        while words:
            match = words[: len(wanted)] == wanted
            count += match
            words = words[len(wanted) if match else 1 :]
        return count

    assert occurrences(Corpus.from_texts(texts), [phrase]) == [sum(map(naive_count, texts))]


def test_occurrences_match_punctuation_literally_and_all_kinds_of_blanks():
    corpus = Corpus.from_texts(["cost: $5 (a+b)!", "xcost: $5 (a+b)"])
    assert occurrences(corpus, ["cost: $5 (a+b)", ".*", "cost"]) == [1, 0, 1]
    assert occurrences(corpus, []) == []
    # Arrow's \s matches ASCII blanks only and would miss a canary.
    for blank in ("\u00a0", "\u2003", "\u3000", "\x0b", "\x1c", "\x85", " \u00a0"):
        corpus = Corpus.from_texts([f"say crimson{blank}falcon again", "nothing here"])
        assert occurrences(corpus, ["crimson falcon", "nothing there"]) == [1, 0]


# Controls of the same tokens


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8))
def test_a_shuffled_control_has_the_same_tokens_in_another_order(tokens):
    order = shuffled(tokens)
    if order is None:
        assert len(set(tokens)) == 1
        return
    assert sorted(order) == sorted(tokens)
    assert list(order) != tokens
    assert order == shuffled(tuple(tokens))  # deterministic


@given(st.lists(st.integers(0, 10_000), min_size=4, max_size=8, unique=True))
def test_a_shuffle_of_different_words_keeps_no_pair_and_no_first_word(tokens):
    order = shuffled(tokens)
    assert not set(pairwise(order)) & set(pairwise(tokens))
    assert order[0] != tokens[0]
    assert shuffled([]) is shuffled([3]) is shuffled([3, 3, 3]) is None
