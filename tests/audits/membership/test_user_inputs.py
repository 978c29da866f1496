"""Inputs of an audit of users: whose each text is, the groups of users, and the queried words."""

from collections import Counter

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.user_inputs import Target, UserInputs, parse_remote, remote_target
from vestige.audits.membership.user_texts import UserTexts, read_user_texts
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.top_k import Context
from vestige.session import Session

WORDS = tuple(f"w{n}" for n in range(30))
"""Enough that no two texts of five random ones are near-duplicates."""
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
COLUMNS = {"format": "auto", "text": "text", "user": None, "source": None, "limit": None}


def corpus_of(users, each=3, seed=0, sources=False):
    """Texts of 6 words, one of them unknown, so many of each user in turn."""
    rng = np.random.default_rng(seed)
    owners = [user for _ in range(each) for user in users]
    texts = [" ".join([*rng.choice(WORDS, 5), "strange"]) for _ in owners]
    return Corpus.from_texts(texts, users=owners, sources=texts[::-1] if sources else None)


NAMES = [f"p{n:02}" for n in range(40)]
OTHERS, MINE = corpus_of(NAMES, seed=1), corpus_of(["ann", "bob"], seed=2)


def session(**given):
    return Session("membership", {}, device="cpu", **{"monitor": RecordingMonitor(), **given})


def parts_of(texts=MINE, reference=OTHERS):
    """Both corpora as they are, without the search for near-duplicates."""
    independent = Check("independent", "passed", "Texts differ.")
    return UserTexts(texts=texts, reference=reference, independent=independent)


def inputs_of(parts):
    flat = np.full((len(VOCABULARY),) * 2, 1 / len(VOCABULARY))
    target = Target.local("m", TableModel(flat[0], flat, VOCABULARY), {})
    return UserInputs.of(target, parts, QueryPolicy(k=3))


def read(texts, reference, *, seed=0, log=None, **given):
    columns = {name: given.pop(name, usual) for name, usual in COLUMNS.items()}
    need_sources = given.pop("sources", False)
    run = session(seed=seed, monitor=log or RecordingMonitor())
    run.arguments = {
        "texts": texts,
        "reference": reference,
        "person": None,
        "random_users": None,
        **columns,
        **given,
    }
    return read_user_texts(run, need_sources=need_sources)


@pytest.fixture(scope="module")
def inputs():
    return inputs_of(parts_of())


# Whose each text is.


def test_texts_without_a_user_column_are_those_of_one_person(tmp_path):
    log = RecordingMonitor()
    assert read(Corpus.from_texts(["a", "b"]), OTHERS, log=log).texts.users == ["me", "me"]
    assert any("count as one person's, 'me'" in line for line in log.lines)
    named = read(MINE, OTHERS, person="carla")
    assert (named.texts.users, list(named.texts)) == (["carla"] * len(MINE), list(MINE))
    assert named.reference.users == OTHERS.users
    (tmp_path / "mine.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    result = read(tmp_path / "mine.jsonl", OTHERS, user="author").texts
    assert (list(result), result.users) == (["a b", "c"], ["me", "me"])
    assert len(read(tmp_path / "mine.jsonl", OTHERS, limit=1).texts) == 1
    with pytest.raises(DataError, match='no column "body"'):
        read(tmp_path / "mine.jsonl", OTHERS, text="body", user="author")


def test_a_reference_without_users_has_two_remedies(tmp_path):
    (tmp_path / "others.jsonl").write_text('{"text": "a b"}\n')
    with pytest.raises(DataError, match=r"others\.jsonl has no user column") as caught:
        read(MINE, tmp_path / "others.jsonl")
    assert "(`user`)" in caught.value.remedy
    assert "(`random_users` 100)" in caught.value.remedy


def test_random_users_share_the_reference_evenly_and_keep_its_order():
    rng = np.random.default_rng(0)
    nobody = Corpus.from_texts(["".join(rng.choice(list("abcdefgh"), 12)) for _ in range(23)])
    one, again, other = (
        read(MINE, nobody, random_users=5, seed=seed).reference for seed in (0, 0, 1)
    )
    assert list(one) == list(nobody)
    assert sorted(Counter(one.users).values()) == [4, 4, 5, 5, 5]
    assert one.users == again.users != other.users
    own = read(MINE, OTHERS, random_users=3).reference
    assert set(own.users) == {"artificial 0", "artificial 1", "artificial 2"}


def test_texts_without_a_user_are_left_out_and_counted():
    log = RecordingMonitor()
    mixed = Corpus.from_texts(["red", "green", "blue"], users=["ann", "", "ann"])
    result = read(mixed, OTHERS, log=log)
    assert (list(result.texts), result.texts.users) == (["red", "blue"], ["ann", "ann"])
    assert log.lines == ["--texts: 1 texts without a user are left out."]
    for place in ("texts", "reference"):
        nobody = {place: Corpus.from_texts(["a", "b"], users=["", ""])}
        with pytest.raises(DataError, match=f"`{place}`: every text has an empty user"):
            read(**{"texts": MINE, "reference": OTHERS, **nobody})


def test_users_on_both_sides_are_refused_unnamed_and_shared_texts_count_once():
    with pytest.raises(DataError, match="1 user is in both `texts` and `reference`") as hidden:
        read(MINE + corpus_of(["p03"], seed=9), OTHERS)
    assert "p03" not in str(hidden.value)
    log = RecordingMonitor()
    reference = OTHERS + Corpus.from_texts(list(MINE)[:2], users=["p00"] * 2)
    result = read(MINE, reference, log=log)
    assert (list(result.texts), list(result.reference)) == (list(MINE), list(OTHERS))
    assert log.lines == [
        f"2 of {len(MINE) + len(reference)} texts are near-duplicates and are left out."
    ]


def test_a_task_that_needs_sources_keeps_them_and_another_drops_them():
    mine, others = (
        corpus_of(names, seed=seed, sources=True) for seed, names in enumerate([["ann"], NAMES])
    )
    result, own = read(mine, others, sources=True).texts, dict(zip(mine, mine.sources, strict=True))
    assert result.sources == [own[text] for text in result]
    assert read(mine, others).texts.sources is None
    with pytest.raises(DataError, match="`reference` has no column with what each text answers"):
        read(mine, OTHERS, sources=True)


# Groups.


def test_every_non_member_is_in_one_group_whatever_the_order_of_documents(inputs):
    result = parts_of().groups(seed=5)
    groups = (result.counted, result.fitted, result.compared)
    assert sorted(name for group in groups for name in group) == NAMES
    assert [len(group) for group in groups] == [10, 10, 20]
    backwards = parts_of(reference=OTHERS.take(np.arange(len(OTHERS))[::-1]))
    assert backwards.groups(seed=5) == result != parts_of().groups(seed=6)
    own = parts_of().reference_of(("p01", "p02"), ("p07",))
    pairs = zip(OTHERS, OTHERS.users, strict=True)
    assert list(own) == [text for text, user in pairs if user in ("p01", "p02", "p07")]
    names = inputs.queries.names
    assert {names[place] for place in inputs.audited} == {"ann", "bob"}
    for group in ("fitted", "compared", "counted"):
        wanted = getattr(inputs.texts.groups(seed=0), group)
        assert [names[n] for n in getattr(inputs.non_members, group)] == list(wanted)


# Words.


def test_known_words_of_all_but_the_counted_are_queried_and_theirs_alone_are_counted(inputs):
    counted = inputs.texts.groups(seed=0).counted
    all_texts = inputs.texts.all_texts()
    expected = [
        (place, at, word)
        for place, (text, user) in enumerate(zip(all_texts, all_texts.users, strict=True))
        for at, word in enumerate(text.split())
        if word in WORDS and user not in counted
    ]
    queries = inputs.queries
    words = map(inputs.target.vocabulary.piece, queries.tokens.tolist())
    result = zip(queries.texts.tolist(), queries.positions.tolist(), words, strict=True)
    assert list(result) == expected
    naive = Counter(" ".join(inputs.texts.reference_of(counted)).split())
    counts = {word: int(inputs.counts.words[2 + n]) for n, word in enumerate(WORDS)}
    assert counts == {word: naive[word] for word in WORDS}


def test_a_context_is_the_words_before_and_the_whole_source(inputs):
    contexts, words = inputs.contexts(inputs.queries.take(inputs.queries.texts == 1))
    split = list(MINE)[1].split()
    assert words == split[:5]
    assert contexts == [Context(tuple(split[:n])) for n in range(5)]
    parts = parts_of(
        texts=corpus_of(["ann"], sources=True), reference=corpus_of(NAMES[:6], sources=True)
    )
    options = QueryOptions(task="dialogue")
    target = remote_target(session(), "ask", lambda contexts: [], parts.reference, options)
    pairs = UserInputs.of(target, parts, QueryPolicy(k=3))
    contexts, _ = pairs.contexts(pairs.queries)
    sources = parts.all_texts().sources
    assert [one.source for one in contexts] == [sources[n] for n in pairs.queries.texts]


@pytest.mark.parametrize(
    ("parts", "rate", "message"),
    [
        # 20 are compared: the smallest p-value is 1 / 21.
        (parts_of(reference=corpus_of(NAMES, each=5, seed=1)), 1 / 22,
         r"leaves 20 to compare with; .* needs 21\. Give texts of 41 people"),
        # 10 fitted users with 3 texts of 5 known words each: 150 words of the 200 that it takes.
        (parts_of(), 0.1, "150 words of 10 non-members"),
        (parts_of(texts=Corpus.from_texts(["nothing known here"], users=["ann"])), 0.1,
         "`texts` has no word that the model knows"),
    ],
)  # fmt: skip
def test_an_audit_that_cannot_succeed_is_refused(parts, rate, message):
    inputs_of(parts_of(reference=corpus_of(NAMES, each=5, seed=1))).require_enough(1 / 21 + 1e-9)
    with pytest.raises(DataError, match=message):
        inputs_of(parts).require_enough(rate)


# Target.


def test_a_function_is_queried_about_the_most_frequent_words_of_the_reference():
    assert parse_remote("some/path") is None
    assert parse_remote(len) is len
    text = Corpus.from_texts(["red red red blue blue lamp"])
    result = remote_target(session(), "m:f", len, text, QueryOptions(vocabulary_size=4))
    words = {result.vocabulary.piece(n) for n in range(result.vocab_size)}
    assert words == {"<unk>", "<eos>", "red", "blue"}
    assert (result.source_vocabulary, result.record["path"], result.task) == (
        None,
        "m:f",
        "next-word",
    )


@pytest.mark.parametrize(("attention", "task"), [(True, "translation"), (False, "dialogue")])
def test_a_model_with_attention_translates_and_one_without_answers(attention, task):
    config = Seq2SeqConfig(embedding_size=3, hidden_size=3, attention=attention)
    result = Target.local("m", Seq2SeqModel(VOCABULARY, VOCABULARY, config), {})
    assert (result.task, result.source_vocabulary, result.vocab_size) == (task, VOCABULARY, 32)
