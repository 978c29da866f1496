import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.experiments.provenance.obfuscation import back_translated, with_synonyms, words_kept

CORPUS = Corpus.from_texts(
    ["The big car.", "don't, BIG!", ""], users=["ann", "bob", "bob"], sources=["big", "", "x"]
)


def test_words_change_and_all_else_stays() -> None:
    changed = with_synonyms(CORPUS, {"big": ["large"], "don": ["father"]}, seed=0)
    assert list(changed) == ["The large car.", "don't, LARGE!", ""]
    assert (changed.users, changed.sources) == (CORPUS.users, CORPUS.sources)


def test_a_capital_at_the_beginning_stays() -> None:
    changed = with_synonyms(Corpus.from_texts(["Big I"]), {"big": ["large"], "i": ["me"]}, seed=0)
    assert list(changed) == ["Large Me"]


def test_synonyms_are_drawn_and_a_seed_decides() -> None:
    corpus = Corpus.from_texts(["a"] * 300)
    choices = {"a": ["x", "y"]}
    made = [list(with_synonyms(corpus, choices, share=0.5, seed=seed)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    # 150 and 75 expected, standard deviations 8.7 and 7.5.
    assert abs(made[0].count("a") - 150) < 40
    assert abs(made[0].count("x") - 75) < 35


@given(st.lists(st.text(max_size=30), max_size=6), st.floats(0.01, 1))
def test_without_synonyms_every_text_is_the_same(texts: list[str], share: float) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]
    corpus = Corpus.from_texts(texts)
    assert with_synonyms(corpus, {}, share=share, seed=0).fingerprint() == corpus.fingerprint()


def test_texts_go_there_and_back_in_batches() -> None:
    sizes: list[int] = []

    def there(texts: list[str]) -> list[str]:
        sizes.append(len(texts))
        return [text.upper() for text in texts]

    corpus = Corpus.from_texts([f"t {i}" for i in range(5)], users=list("abcde"))
    made = back_translated(corpus, there, lambda texts: [t + "!" for t in texts], batch=2)
    assert list(made) == [f"T {i}!" for i in range(5)]
    assert (made.users, sizes) == (corpus.users, [2, 2, 1])


def test_what_comes_back_blank_stays_as_it_was() -> None:
    made = back_translated(CORPUS, lambda texts: texts, lambda texts: [" "] * len(texts))
    assert made.fingerprint() == CORPUS.fingerprint()
    assert words_kept(CORPUS, made) == 1


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), min_size=1, max_size=5), st.randoms())
def test_kept_words_are_what_bags_of_words_share(rows: list[list[str]], random) -> None:
    others = [[random.choice("abcd") for _ in row] for row in rows]
    total = sum(map(len, rows))
    if not total:
        return
    shared = sum(
        min(r.count(w), o.count(w)) for r, o in zip(rows, others, strict=True) for w in "abc"
    )
    before, after = (Corpus.from_texts(" ".join(r) for r in side) for side in (rows, others))
    assert words_kept(before, after) == shared / total


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (
            lambda texts: texts[1:],
            "the translator there returned 1 texts for 2, from document 0 on",
        ),
        (lambda texts: [*texts, "x"], "returned 3 texts for 2"),
        (lambda texts: "ab", "no list of texts"),
        (lambda texts: [None, "a"], "no list of texts"),
        (lambda texts: np.array(texts), "no list of texts"),
    ],
)
def test_a_translator_that_gives_other_than_it_got_is_refused(there, says: str) -> None:
    with pytest.raises(DataError, match=says):
        back_translated(CORPUS, there, lambda texts: texts, batch=2)
    with pytest.raises(DataError, match=says.replace("there", "back")):
        back_translated(CORPUS, lambda texts: texts, there, batch=2)


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\]"):
        with_synonyms(CORPUS, {}, share=share, seed=0)


def test_only_equally_many_documents_with_words_are_compared() -> None:
    with pytest.raises(ValueError, match="after must have 3 documents"):
        words_kept(CORPUS, CORPUS.take([0]))
    with pytest.raises(ValueError, match="before must hold words"):
        words_kept(CORPUS.take([2]), CORPUS.take([2]))
