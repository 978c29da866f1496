"""Inputs of an audit: whose each text is, which words are queried, and who plays which part."""

from collections import Counter

import numpy as np
import pytest

from tests.audits.told import Told
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.user_inputs import Target, UserInputs, remote_target
from vestige.audits.membership.user_texts import UserTexts, read_user_texts
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.table import TableModel
from vestige.models.top_k import Context
from vestige.session import Session

WORDS = tuple(f"w{n}" for n in range(30))
"""Enough that no two texts of five random ones are near-duplicates."""
COLUMNS = {"format": "auto", "text": "text", "user": None, "source": None, "limit": None}


def session(**given):
    return Session("membership", {}, device="cpu", **given)


def corpus_of(users, each=3, seed=0, sources=False):
    """Texts of 6 words, one of them unknown, so many of each user in turn."""
    chance = np.random.default_rng(seed)
    owners = [user for _ in range(each) for user in users]
    texts = [" ".join([*chance.choice(WORDS, 5), "strange"]) for _ in owners]
    return Corpus.from_texts(texts, users=owners, sources=texts[::-1] if sources else None)


OTHERS = corpus_of([f"p{n:02}" for n in range(40)], seed=1)
MANY = corpus_of([f"p{n:02}" for n in range(40)], each=5, seed=1)
MINE = corpus_of(["ann", "bob"], seed=2)


def model():
    size = len(WORDS) + 2
    flat = np.full((size, size), 1 / size)
    return TableModel(flat[0], flat, WordVocabulary(("<unk>", "<eos>", *WORDS)))


def parts_of(texts=MINE, reference=OTHERS):
    """Both corpora as they are, without the search for near-duplicates."""
    independent = Check("independent", "passed", "Texts differ.")
    return UserTexts(texts=texts, reference=reference, independent=independent)


def inputs_of(parts):
    return UserInputs.of(Target.local("m", model(), {}), parts, QueryPolicy(k=3))


def read(texts, reference, *, monitor=None, seed=0, **given):
    columns = {name: given.pop(name, usual) for name, usual in COLUMNS.items()}
    run = session(monitor=monitor or Told(), seed=seed)
    return read_user_texts(run, texts, reference, columns=columns, **given)


@pytest.fixture(scope="module")
def inputs():
    return inputs_of(parts_of())


# whose each text is


def test_a_person_owns_every_audited_text_whoever_stands_there():
    found = read(MINE, OTHERS, person="carla")
    assert found.texts.users == ["carla"] * len(MINE)
    assert list(found.texts) == list(MINE)
    assert found.reference.users == OTHERS.users


def test_texts_of_nobody_are_one_persons_and_it_is_told():
    log = Told()
    found = read(Corpus.from_texts(["a", "b"]), OTHERS, monitor=log)
    assert found.texts.users == ["me", "me"]
    assert any("count as one person's, 'me'" in line for line in log.lines)


def test_a_file_without_the_column_of_users_is_one_persons(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    found = read(tmp_path / "mine.jsonl", OTHERS, user="author")
    assert (list(found.texts), found.texts.users) == (["a b", "c"], ["me", "me"])


def test_a_reference_without_users_names_both_ways_out(tmp_path):
    (tmp_path / "others.jsonl").write_text('{"text": "a b"}\n')
    with pytest.raises(DataError, match=r"others\.jsonl has no user column") as caught:
        read(MINE, tmp_path / "others.jsonl")
    assert "(`user`)" in caught.value.remedy
    assert "(`random_users` 100)" in caught.value.remedy


def test_random_users_share_the_reference_evenly_and_keep_its_order():
    chance = np.random.default_rng(0)
    nobody = Corpus.from_texts(["".join(chance.choice(list("abcdefgh"), 12)) for _ in range(23)])
    found = read(MINE, nobody, random_users=5).reference
    assert list(found) == list(nobody)
    assert sorted(Counter(found.users).values()) == [4, 4, 5, 5, 5]
    assert read(MINE, nobody, random_users=5).reference.users == found.users
    assert read(MINE, nobody, random_users=5, seed=1).reference.users != found.users


def test_random_users_are_made_even_where_the_reference_has_its_own():
    found = read(MINE, OTHERS, random_users=3).reference
    assert set(found.users) == {"artificial 0", "artificial 1", "artificial 2"}


def test_texts_without_a_user_are_left_out_and_counted():
    log = Told()
    mixed = Corpus.from_texts(["red", "green", "blue"], users=["ann", "", "ann"])
    found = read(mixed, OTHERS, monitor=log)
    assert (list(found.texts), found.texts.users) == (["red", "blue"], ["ann", "ann"])
    assert log.lines == ["--texts: 1 texts without a user are left out."]


@pytest.mark.parametrize("place", ["texts", "reference"])
def test_texts_that_all_lack_a_user_are_refused_by_parameter(place):
    given = {"texts": MINE, "reference": OTHERS}
    given[place] = Corpus.from_texts(["a", "b"], users=["", ""])
    with pytest.raises(DataError, match=f"`{place}`: every text has an empty user"):
        read(**given)


def test_somebody_in_both_parts_is_counted_and_not_named():
    both = MINE + corpus_of(["p03"], seed=9)
    with pytest.raises(DataError, match="1 user is in both `texts` and `reference`") as hidden:
        read(both, OTHERS)
    assert "p03" not in str(hidden.value)


def test_texts_in_both_parts_count_once_for_the_audited_and_it_is_told():
    log = Told()
    reference = OTHERS + Corpus.from_texts(list(MINE)[:2], users=["p00"] * 2)
    found = read(MINE, reference, monitor=log)
    assert list(found.texts) == list(MINE)
    assert list(found.reference) == list(OTHERS)
    assert log.lines == [
        f"2 of {len(MINE) + len(reference)} texts are near-duplicates and are left out."
    ]


def test_a_limit_counts_documents_of_each_corpus(tmp_path):
    lines = [f'{{"text": "{word}"}}\n' for word in ("red", "green", "blue")]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    assert len(read(tmp_path / "a.jsonl", OTHERS, limit=2).texts) == 2


# groups


def test_every_non_member_is_in_one_group_and_nobody_in_two():
    found = parts_of().groups(seed=3)
    groups = (found.counted, found.fitted, found.compared)
    assert sorted(name for group in groups for name in group) == sorted(set(OTHERS.users))
    assert [len(group) for group in groups] == [10, 10, 20]


def test_the_order_of_documents_does_not_decide_the_groups():
    backwards = OTHERS.take(np.arange(len(OTHERS))[::-1])
    one, other = (parts_of(reference=part) for part in (OTHERS, backwards))
    assert one.groups(seed=5) == other.groups(seed=5)
    assert one.groups(seed=5) != one.groups(seed=6)


def test_the_reference_of_a_group_is_its_members_texts_in_order():
    parts = parts_of()
    found = parts.reference_of(("p01", "p02"), ("p07",))
    pairs = zip(OTHERS, OTHERS.users, strict=True)
    assert list(found) == [text for text, user in pairs if user in ("p01", "p02", "p07")]


def test_a_task_that_needs_sources_keeps_them_and_another_drops_them():
    mine = corpus_of(["ann"], sources=True)
    others = corpus_of([f"p{n:02}" for n in range(40)], seed=1, sources=True)
    found, own = read(mine, others, sources=True).texts, dict(zip(mine, mine.sources, strict=True))
    assert found.sources == [own[text] for text in found]
    assert read(mine, others).texts.sources is None
    with pytest.raises(DataError, match="`reference` has no column with what each text answers"):
        read(mine, OTHERS, sources=True)


# words


def test_known_words_of_everybody_but_the_counted_are_queried(inputs):
    counted = inputs.texts.groups(seed=0).counted
    together = inputs.texts.together()
    expected = [
        (place, at, word)
        for place, (text, user) in enumerate(zip(together, together.users, strict=True))
        for at, word in enumerate(text.split())
        if word in WORDS and user not in counted
    ]
    asked, vocabulary = inputs.queries, inputs.target.vocabulary
    words = map(vocabulary.piece, asked.tokens.tolist())
    found = zip(asked.texts.tolist(), asked.positions.tolist(), words, strict=True)
    assert list(found) == expected


def test_words_are_counted_in_the_texts_of_the_counted_alone(inputs):
    counted = inputs.texts.groups(seed=0).counted
    expected = Counter(" ".join(inputs.texts.reference_of(counted)).split())
    found = {word: int(inputs.counts.words[2 + n]) for n, word in enumerate(WORDS)}
    assert found == {word: expected[word] for word in WORDS}


def test_audited_and_non_members_have_their_places_among_the_names(inputs):
    names = inputs.queries.names
    assert {names[place] for place in inputs.audited} == {"ann", "bob"}
    known = inputs.known
    named = [[names[n] for n in group] for group in (known.fitted, known.compared, known.counted)]
    groups = inputs.texts.groups(seed=0)
    assert named == [list(group) for group in (groups.fitted, groups.compared, groups.counted)]


def test_a_context_is_the_words_before_in_the_words_of_the_text(inputs):
    first = inputs.queries.take(inputs.queries.texts == 1)
    contexts, words = inputs.contexts(first)
    said = list(MINE)[1].split()
    assert words == said[:5]
    assert contexts == [Context(tuple(said[:n])) for n in range(5)]


def test_a_context_of_pairs_carries_the_whole_source():
    parts = parts_of(
        texts=corpus_of(["ann"], sources=True),
        reference=corpus_of([f"p{n}" for n in range(6)], sources=True),
    )
    target = remote_target(
        session(), "ask", lambda contexts: [], parts.reference, QueryOptions(task="dialogue")
    )
    inputs = UserInputs.of(target, parts, QueryPolicy(k=3))
    contexts, _ = inputs.contexts(inputs.queries)
    sources = parts.together().sources
    assert [one.source for one in contexts] == [sources[n] for n in inputs.queries.texts]


# what cannot succeed


def test_non_members_that_cannot_reach_the_rate_are_refused():
    # 20 are compared: the smallest p-value is 1 / 21.
    inputs = inputs_of(parts_of(reference=MANY))
    inputs.check(1 / 21 + 1e-9)
    with pytest.raises(DataError, match=r"leaves 20 to compare with; .* needs 21"):
        inputs.check(1 / 22)


def test_too_few_words_to_learn_from_are_refused(inputs):
    # 10 fitted users with 3 texts of 5 known words each: 150 words of the 200 that it takes.
    with pytest.raises(DataError, match="150 words of 10 non-members"):
        inputs.check(0.1)


def test_texts_without_a_known_word_are_refused():
    stranger = Corpus.from_texts(["nothing known here"], users=["ann"])
    found = inputs_of(parts_of(texts=stranger))
    with pytest.raises(DataError, match="`texts` has no word that the model knows"):
        found.check(0.1)
