"""A function as the target: its answers outlive the program, and each context is sent once."""

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_inputs import UserInputs, remote_target
from vestige.audits.membership.user_texts import UserTexts
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.remote.functions import ACCOUNT, ServiceModel
from vestige.models.remote.options import RemoteOptions
from vestige.models.token_statistics import cached_outputs
from vestige.models.top_k import Context
from vestige.session import Session
from vestige.store import Store

# Answers in a store.

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]
ANSWERS = [("to", "end"), ("to", "be", "end"), ("end",)]


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def session_of(path, *, budget=None):
    """One session; the answers and the statistics of all sessions."""
    with Store(path) as store:
        model = ServiceModel(echo, k=3, store=store, budget=budget)
        return model.likeliest(CONTEXTS), model.statistics


def cached(store):
    """The answers in a store; the function is not called."""
    return ServiceModel(echo, k=3, store=store, budget=0).likeliest(CONTEXTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "work.sqlite"


def test_a_call_that_a_kill_cut_short_counts_for_the_budget(path):
    with Store(path) as store:
        store[ACCOUNT] = {"queries": 2, "calls": 1, "budget": None, "gave_up": False}
    answers, account = session_of(path, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


@pytest.mark.slow
def test_a_flipped_bit_anywhere_changes_no_answer(path):
    first, _ = session_of(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 31):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with Store(path) as store:
            result = cached(store)
        assert all(answer in (None, known) for answer, known in zip(result, first, strict=True))


def test_half_a_character_is_a_word_like_others(path):
    for _ in range(2):
        with Store(path) as store:
            model = ServiceModel(lambda _: [["\ud800", "\x1b[31m"]], k=2, store=store)
            assert model.likeliest(CONTEXTS[:1]) == [("\ud800", "\x1b[31m")]
            assert model.statistics.queries == 1


# What an audit asks of a function that always lists two words.

LISTED = ("red", "blue")
MINE = Corpus.from_texts(["red blue red", "red blue green"], users=["ann", "ann"])
OTHERS = Corpus.from_texts(
    [f"{one} red {two}" for one in ("green", "blue") for two in ("red", "green", "blue")],
    users=[f"p{n}" for n in range(6)],
)


class Recorded:
    """A function that lists the same words after every context, and keeps the contexts."""

    def __init__(self, listed=LISTED):
        self.listed, self.contexts = listed, []

    def __call__(self, contexts):
        self.contexts += contexts
        print("noise")
        return [self.listed for _ in contexts]


def service(ask, folder, *, texts=MINE, policy=None, **options):
    run = Session("membership", {}, store=Store(folder / "work.sqlite"), monitor=RecordingMonitor())
    target = remote_target(run, "m:ask", ask, OTHERS, QueryOptions())
    independent = Check("independent", "passed", "Texts differ.")
    read = UserTexts(texts=texts, reference=OTHERS, independent=independent)
    with cached_outputs(None, run.monitor) as outputs:
        return Service(
            run=run,
            inputs=UserInputs.of(target, read, policy or QueryPolicy(k=2)),
            options=RemoteOptions(**{"attempts": 1, **options}),
            outputs=outputs,
        )


def contexts_of(one):
    """The contexts of the queried words, naively."""
    words, texts = one.inputs.queries, list(one.inputs.texts.all_texts())
    places = zip(words.texts.tolist(), words.positions.tolist(), strict=True)
    return [tuple(texts[text].split()[:at]) for text, at in places]


def test_a_rank_is_the_place_in_the_list_and_no_session_sends_a_context_again(tmp_path, capsys):
    ask = Recorded()
    one = service(ask, tmp_path)
    assert one.statistics == {}
    one.probe()
    assert len(ask.contexts) == 1
    words = [one.inputs.target.vocabulary.piece(t) for t in one.inputs.queries.tokens.tolist()]
    first = one.ranks(one.inputs.queries)
    assert first.tolist() == [LISTED.index(w) + 1 if w in LISTED else 3 for w in words]
    assert sorted(context.words for context in ask.contexts) == sorted(set(contexts_of(one)))
    again = service(ask, tmp_path)
    assert np.array_equal(again.ranks(again.inputs.queries), first)
    assert len(ask.contexts) == len(set(contexts_of(one))) == again.statistics["queries"]
    output = capsys.readouterr()
    assert (output.out, "noise" in output.err) == ("", True)


def test_a_budget_must_cover_the_different_contexts(tmp_path):
    def most(one):
        """Before words are selected each user may take all calls, and one is tried."""
        return sum(min(2, words) for words in one.inputs.queries.counts().tolist()) + 1

    informative = QueryPolicy(select="informative", calls=2, k=2)
    for policy, needed_by, message in (
        (None, lambda one: len(set(contexts_of(one))), "needs {} queries"),
        (informative, most, "needs up to {} queries"),
    ):
        needed = needed_by(service(Recorded(), tmp_path, policy=policy))
        service(Recorded(), tmp_path, policy=policy, budget=needed).check_budget()
        with pytest.raises(DataError, match=message.format(needed)):
            service(Recorded(), tmp_path, policy=policy, budget=needed - 1).check_budget()


def test_words_beyond_the_budget_have_no_rank(tmp_path):
    ask = Recorded()
    one = service(ask, tmp_path, budget=2)
    result = one.ranks(one.inputs.queries)
    answered = {context.words for context in ask.contexts}
    assert len(ask.contexts) == 2
    assert (result > 0).tolist() == [words in answered for words in contexts_of(one)]


def test_cached_ranks_are_named_by_weights_texts_and_words(tmp_path):
    inputs = service(Recorded(), tmp_path).inputs
    other = service(Recorded(), tmp_path, texts=MINE.take(np.array([1, 0]))).inputs
    few = inputs.queries.take(np.arange(len(inputs.queries) - 1))
    keys = [
        inputs.key("a", inputs.queries), inputs.key("b", inputs.queries),
        inputs.key("a", few), other.key("a", other.queries),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert service(Recorded(), tmp_path).inputs.key("a", inputs.queries) == keys[0]


@pytest.mark.parametrize(("listed", "noticed"), [(("re", "##d"), True), (("red", "##d"), False)])
def test_a_function_that_lists_pieces_of_words_is_noticed(tmp_path, listed, noticed):
    one = service(Recorded(listed), tmp_path)
    one.ranks(one.inputs.queries)
    assert any("pieces of words" in line for line in one.run.monitor.lines) is noticed
