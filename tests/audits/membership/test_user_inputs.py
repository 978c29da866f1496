"""Inputs of an audit of users: users of texts, groups of users, and queried words."""

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
"""Enough words that no two texts of five random ones are near-duplicates."""
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
DEFAULTS = {
    "person": None, "random_users": None, "format": "auto", "text": "text", "user": None,
    "source": None, "limit": None,
}  # fmt: skip


def corpus_of(users, texts=3, seed=0, sources=False):
    """Texts of 6 words, one of them unknown, by each user in turn."""
    rng = np.random.default_rng(seed)
    authors = [user for _ in range(texts) for user in users]
    lines = [" ".join([*rng.choice(WORDS, 5), "strange"]) for _ in authors]
    return Corpus.from_texts(lines, users=authors, sources=lines[::-1] if sources else None)


NAMES = [f"p{n:02}" for n in range(40)]
REFERENCE, TEXTS = corpus_of(NAMES, seed=1), corpus_of(["ann", "bob"], seed=2)


def session(**options):
    return Session("membership", {}, device="cpu", **{"monitor": RecordingMonitor(), **options})


def user_texts(texts=TEXTS, reference=REFERENCE):
    """Both corpora without the search for near-duplicates."""
    independent = Check("independent", "passed", "Texts differ.")
    return UserTexts(texts=texts, reference=reference, independent=independent)


def inputs_of(texts):
    flat = np.full((len(VOCABULARY),) * 2, 1 / len(VOCABULARY))
    target = Target.local("m", TableModel(flat[0], flat, VOCABULARY), {})
    return UserInputs.of(target, texts, QueryPolicy(k=3))


def read(texts=TEXTS, reference=REFERENCE, *, seed=0, log=None, sources=False, **options):
    run = session(seed=seed, monitor=log or RecordingMonitor())
    run.arguments = {**DEFAULTS, "texts": texts, "reference": reference, **options}
    return read_user_texts(run, need_sources=sources)


@pytest.fixture(scope="module")
def inputs():
    return inputs_of(user_texts())


# Users of texts.


def test_texts_without_a_user_column_belong_to_one_person(tmp_path):
    log = RecordingMonitor()
    assert read(Corpus.from_texts(["a", "b"]), log=log).texts.users == ["me", "me"]
    assert any("count as one person's, 'me'" in line for line in log.lines)
    named = read(person="carla")
    assert (named.texts.users, list(named.texts)) == (["carla"] * len(TEXTS), list(TEXTS))
    assert named.reference.users == REFERENCE.users
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a b"}\n{"text": "c"}\n')
    texts = read(file, user="author").texts
    assert (list(texts), texts.users) == (["a b", "c"], ["me", "me"])
    assert len(read(file, limit=1).texts) == 1
    with pytest.raises(DataError, match='no column "body"'):
        read(file, text="body", user="author")


def test_a_reference_without_users_has_two_remedies(tmp_path):
    (tmp_path / "others.jsonl").write_text('{"text": "a b"}\n')
    with pytest.raises(DataError, match=r"others\.jsonl has no user column") as caught:
        read(reference=tmp_path / "others.jsonl")
    assert "(`user`)" in caught.value.remedy
    assert "(`random_users` 100)" in caught.value.remedy


def test_random_users_have_equal_parts_of_the_reference_in_its_order():
    rng = np.random.default_rng(0)
    texts = Corpus.from_texts(["".join(rng.choice(list("abcdefgh"), 12)) for _ in range(23)])
    first, again, other = (
        read(reference=texts, random_users=5, seed=seed).reference for seed in (0, 0, 1)
    )
    assert list(first) == list(texts)
    assert sorted(Counter(first.users).values()) == [4, 4, 5, 5, 5]
    assert first.users == again.users != other.users
    names = set(read(random_users=3).reference.users)  # in place of the users' own
    assert names == {"artificial 0", "artificial 1", "artificial 2"}


def test_texts_without_a_user_are_omitted_and_counted():
    log = RecordingMonitor()
    mixed = Corpus.from_texts(["red", "green", "blue"], users=["ann", "", "ann"])
    result = read(mixed, log=log)
    assert (list(result.texts), result.texts.users) == (["red", "blue"], ["ann", "ann"])
    assert log.lines == ["--texts: 1 texts without a user are left out."]
    for name in ("texts", "reference"):
        without_users = {name: Corpus.from_texts(["a", "b"], users=["", ""])}
        with pytest.raises(DataError, match=f"`{name}`: every text has an empty user"):
            read(**without_users)


def test_users_on_both_sides_are_refused_without_their_names():
    with pytest.raises(DataError, match="1 user is in both `texts` and `reference`") as caught:
        read(TEXTS + corpus_of(["p03"], seed=9))
    assert "p03" not in str(caught.value)


def test_texts_on_both_sides_count_once():
    log = RecordingMonitor()
    reference = REFERENCE + Corpus.from_texts(list(TEXTS)[:2], users=["p00"] * 2)
    result = read(reference=reference, log=log)
    assert (list(result.texts), list(result.reference)) == (list(TEXTS), list(REFERENCE))
    total = len(TEXTS) + len(reference)
    assert log.lines == [f"2 of {total} texts are near-duplicates and are left out."]


def test_sources_are_read_only_for_tasks_that_need_them():
    texts = corpus_of(["ann"], seed=0, sources=True)
    others = corpus_of(NAMES, seed=1, sources=True)
    source_of = dict(zip(texts, texts.sources, strict=True))
    result = read(texts, others, sources=True).texts
    assert result.sources == [source_of[text] for text in result]
    assert read(texts, others).texts.sources is None
    with pytest.raises(DataError, match="`reference` has no column with what each text answers"):
        read(texts, sources=True)


# Groups.


def test_groups_of_users_do_not_depend_on_the_order_of_texts(inputs):
    backwards = user_texts(reference=REFERENCE.take(np.arange(len(REFERENCE))[::-1]))
    assert backwards.groups(seed=5) == user_texts().groups(seed=5) != user_texts().groups(seed=6)
    texts = user_texts().reference_of(("p01", "p02"), ("p07",))
    pairs = zip(REFERENCE, REFERENCE.users, strict=True)
    assert list(texts) == [text for text, user in pairs if user in ("p01", "p02", "p07")]
    names = inputs.queries.names
    assert {names[user] for user in inputs.audited} == {"ann", "bob"}
    for group in ("fitted", "compared", "counted"):
        expected = getattr(inputs.texts.groups(seed=0), group)
        assert [names[user] for user in getattr(inputs.non_members, group)] == list(expected)


# Words.


def test_texts_of_counted_users_give_counts_and_all_others_give_queries(inputs):
    counted = inputs.texts.groups(seed=0).counted
    all_texts = inputs.texts.all_texts()
    expected = [
        (n, position, word)
        for n, (text, user) in enumerate(zip(all_texts, all_texts.users, strict=True))
        for position, word in enumerate(text.split())
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
    expected = list(TEXTS)[1].split()[:5]
    assert words == expected
    assert contexts == [Context(tuple(expected[:n])) for n in range(5)]
    texts = user_texts(
        texts=corpus_of(["ann"], sources=True), reference=corpus_of(NAMES[:6], sources=True)
    )
    options = QueryOptions(task="dialogue")
    target = remote_target(session(), "ask", lambda contexts: [], texts.reference, options)
    pairs = UserInputs.of(target, texts, QueryPolicy(k=3))
    contexts, _ = pairs.contexts(pairs.queries)
    sources = texts.all_texts().sources
    assert [context.source for context in contexts] == [sources[n] for n in pairs.queries.texts]


@pytest.mark.parametrize(
    ("texts", "rate", "message"),
    [
        # 20 are compared: the least p-value is 1 / 21.
        (user_texts(reference=corpus_of(NAMES, texts=5, seed=1)), 1 / 22,
         r"leaves 20 to compare with; .* needs 21\. Give texts of 41 people"),
        # 10 fitted users have 3 texts of 5 known words each: 150 words, and 200 are needed.
        (user_texts(), 0.1, "150 words of 10 non-members"),
        (user_texts(texts=Corpus.from_texts(["nothing known here"], users=["ann"])), 0.1,
         "`texts` has no word that the model knows"),
    ],
)  # fmt: skip
def test_too_little_text_is_refused(texts, rate, message):
    inputs_of(user_texts(reference=corpus_of(NAMES, texts=5, seed=1))).require_enough(1 / 21 + 1e-9)
    with pytest.raises(DataError, match=message):
        inputs_of(texts).require_enough(rate)


# Target.


def test_a_function_is_queried_about_the_most_frequent_words_of_the_reference():
    assert parse_remote("some/path") is None
    assert parse_remote(len) is len
    text = Corpus.from_texts(["red red red blue blue lamp"])
    result = remote_target(session(), "m:f", len, text, QueryOptions(vocabulary_size=4))
    words = {result.vocabulary.piece(n) for n in range(result.vocab_size)}
    assert words == {"<unk>", "<eos>", "red", "blue"}
    assert (result.source_vocabulary, result.record["path"]) == (None, "m:f")
    assert result.task == "next-word"


@pytest.mark.parametrize(("attention", "task"), [(True, "translation"), (False, "dialogue")])
def test_a_model_with_attention_translates_and_one_without_answers(attention, task):
    config = Seq2SeqConfig(embedding_size=3, hidden_size=3, attention=attention)
    result = Target.local("m", Seq2SeqModel(VOCABULARY, VOCABULARY, config), {})
    assert (result.task, result.source_vocabulary, result.vocab_size) == (task, VOCABULARY, 32)
