"""A function or a server is asked within its budget, each context once, whatever it does wrong."""

import stat
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import users
from tests.audits.told import Told
from tests.models.narrowed import narrow
from vestige.audits.membership import service as service_module
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_inputs import UserInputs, remote_target
from vestige.audits.membership.user_texts import UserTexts
from vestige.claims import UNDECIDED, Check
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.remote import retry as retries
from vestige.models.remote.functions import ACCOUNT, ServiceModel
from vestige.models.remote.options import RemoteOptions
from vestige.models.remote.retry import RetryPolicy
from vestige.models.token_statistics import cached_outputs
from vestige.models.top_k import Context
from vestige.session import Session
from vestige.store import KEPT, Store

# Answers of a function outlive the program, and a kill loses at most those of one call.

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]
ANSWERS = [("to", "end"), ("to", "be", "end"), ("end",)]


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def asked(path, *, budget=None):
    """One session; the answers and the statistics of all sessions."""
    with Store(path) as store:
        model = ServiceModel(echo, k=3, store=store, budget=budget)
        return model.likeliest(CONTEXTS), model.statistics


def cached(store):
    """The answers in a store; nothing is asked."""
    return ServiceModel(echo, k=3, store=store, budget=0).likeliest(CONTEXTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "work.sqlite"


def test_a_second_session_asks_nothing_again_and_only_its_owner_may_read_the_answers(path):
    with Store(path) as store:
        assert cached(store) == [None] * 3
        assert len(store) == 0
    assert not path.exists()
    first, account = asked(path)
    again, later = asked(path)
    assert again == first == ANSWERS
    for name, counts in {
        "queries": (3, 3), "calls": (1, 1), "short_lists": (2, 2), "cached": (0, 3),
    }.items():  # fmt: skip
        assert (getattr(account, name), getattr(later, name)) == counts
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_answers_before_a_kill_or_a_malformed_one_are_on_the_disk(path, tmp_path):
    calls = []

    def killed(contexts):
        calls.append(contexts)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return echo(contexts)

    store = Store(path)
    with pytest.raises(KeyboardInterrupt):
        ServiceModel(killed, k=3, store=store, retry=RetryPolicy(at_once=1)).likeliest(CONTEXTS)
    assert cached(store) == [*ANSWERS[:2], None]
    assert (store[ACCOUNT]["queries"], store[ACCOUNT]["calls"]) == (3, 3)
    store.close()
    with Store(tmp_path / "other.sqlite") as store:
        with pytest.raises(ModelError, match="int instead of a list"):
            ServiceModel(lambda _: [["to"], 3, ["be"]], k=3, store=store).likeliest(CONTEXTS)
        assert cached(store) == [("to",), None, None]


def test_calls_under_way_at_a_kill_count_for_the_budget(path):
    with Store(path) as store:
        store[ACCOUNT] = {"queries": 2, "calls": 1, "budget": None, "gave_up": False}
    answers, account = asked(path, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


@pytest.mark.slow
def test_a_flipped_bit_anywhere_changes_no_answer(path):
    first, _ = asked(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 31):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with Store(path) as store:
            found = cached(store)
        assert all(answer in (None, known) for answer, known in zip(found, first, strict=True))


def test_half_a_character_is_a_word_as_another(path):
    for _ in range(2):
        with Store(path) as store:
            model = ServiceModel(lambda _: [["\ud800", "\x1b[31m"]], k=2, store=store)
            assert model.likeliest(CONTEXTS[:1]) == [("\ud800", "\x1b[31m")]
            assert model.statistics.queries == 1


# A service: what an audit asks of a function that always lists two words.

LISTED = ("red", "blue")
MINE = Corpus.from_texts(["red blue red", "red blue green"], users=["ann", "ann"])
OTHERS = Corpus.from_texts(
    [f"{one} red {two}" for one in ("green", "blue") for two in ("red", "green", "blue")],
    users=[f"p{n}" for n in range(6)],
)


class Asked:
    """Keeps what it is asked."""

    def __init__(self):
        self.seen = []

    def __call__(self, contexts):
        self.seen += contexts
        print("noise")
        return [LISTED for _ in contexts]


def service(ask, folder, *, texts=MINE, policy=None, **options):
    run = Session("membership", {}, store=Store(folder / "work.sqlite"), monitor=Told())
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
    words, texts = one.inputs.queries, list(one.inputs.texts.together())
    places = zip(words.texts.tolist(), words.positions.tolist(), strict=True)
    return [tuple(texts[text].split()[:at]) for text, at in places]


def test_a_rank_is_the_place_in_the_list_and_a_context_is_sent_once_in_all_sessions(
    tmp_path, capsys
):
    ask = Asked()
    one = service(ask, tmp_path)
    assert one.statistics == {}
    one.probe()
    assert len(ask.seen) == 1
    words = [one.inputs.target.vocabulary.piece(t) for t in one.inputs.queries.tokens.tolist()]
    first = one.ranks(one.inputs.queries)
    assert first.tolist() == [LISTED.index(w) + 1 if w in LISTED else 3 for w in words]
    assert sorted(context.words for context in ask.seen) == sorted(set(contexts_of(one)))
    again = service(ask, tmp_path)
    assert np.array_equal(again.ranks(again.inputs.queries), first)
    assert len(ask.seen) == len(set(contexts_of(one))) == again.statistics["queries"]
    said = capsys.readouterr()
    assert (said.out, "noise" in said.err) == ("", True)


def test_a_budget_of_the_different_contexts_is_enough_and_words_beyond_it_have_no_rank(tmp_path):
    needed = len(set(contexts_of(service(Asked(), tmp_path))))
    service(Asked(), tmp_path, budget=needed).check_budget()
    with pytest.raises(DataError, match=f"this audit needs {needed} queries"):
        service(Asked(), tmp_path, budget=needed - 1).check_budget()
    # Before words are selected each user may take all calls, and one is tried.
    policy = QueryPolicy(how="informative", calls=2, k=2)
    probe = service(Asked(), tmp_path, policy=policy)
    most = sum(min(2, words) for words in probe.inputs.queries.counts().tolist()) + 1
    service(Asked(), tmp_path, policy=policy, budget=most).check_budget()
    with pytest.raises(DataError, match=f"needs up to {most} queries"):
        service(Asked(), tmp_path, policy=policy, budget=most - 1).check_budget()
    ask = Asked()
    one = service(ask, tmp_path, budget=2)
    found = one.ranks(one.inputs.queries)
    answered = {context.words for context in ask.seen}
    assert len(ask.seen) == 2
    assert (found > 0).tolist() == [words in answered for words in contexts_of(one)]


def test_cached_ranks_are_named_by_weights_texts_and_words(tmp_path):
    inputs = service(Asked(), tmp_path).inputs
    other = service(Asked(), tmp_path, texts=MINE.take(np.array([1, 0]))).inputs
    few = inputs.queries.take(np.arange(len(inputs.queries) - 1))
    keys = [
        inputs.key("a", inputs.queries), inputs.key("b", inputs.queries),
        inputs.key("a", few), other.key("a", other.queries),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert service(Asked(), tmp_path).inputs.key("a", inputs.queries) == keys[0]


@pytest.mark.parametrize(("listed", "noticed"), [(("re", "##d"), True), (("red", "##d"), False)])
def test_a_function_that_lists_pieces_of_words_is_noticed(tmp_path, listed, noticed):
    one = service(lambda contexts: [listed for _ in contexts], tmp_path)
    one.ranks(one.inputs.queries)
    assert any("pieces of words" in line for line in one.run.monitor.lines) is noticed


# The verb, of functions that misbehave.

WORDS = tuple(f"w{n}" for n in range(12))
"""Few, so that texts begin alike and little is asked; enough that few are near-duplicates."""


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(6)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 6)) for _ in owners], users=owners)


ME = texts_of(["me"], seed=1)
PEOPLE = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *WORDS)), config).eval()


@pytest.fixture
def likeliest(model):
    return narrow(model, k=3).likeliest


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(
        retries.RetryPolicy, "pauses", lambda retry: [0.0] * (retry.attempts - 1) + [None]
    )


def audit(target, **given):
    usual = {"reference": PEOPLE, "shadows": 0, "top_k": 3}
    usual |= {} if given.keys() & {"queries", "calls"} else {"queries": 5}
    return users(target, ME, **{**usual, **given})


@pytest.mark.slow
def test_a_callable_an_outsiders_model_and_a_name_give_the_same_audit(model, monkeypatch):
    outside = narrow(model, k=3)
    named = SimpleNamespace(ask=outside.likeliest)
    monkeypatch.setitem(sys.modules, "asked_of_tests", named)
    found = [audit(one) for one in (outside, outside.likeliest, "asked_of_tests:ask")]
    assert [one.rows for one in found] == [found[0].rows] * 3
    assert found[0].summary["queries"] > 0
    summary = found[0].summary
    assert summary["queries"] + summary["cached"] == summary["words_asked"]


def test_a_service_that_always_lists_the_same_words_is_undecided():
    found = audit(lambda contexts: [list(WORDS[:3])] * len(contexts))
    assert found.verdict == UNDECIDED
    assert "alive" in failed(found)


@pytest.mark.slow
def test_a_service_that_fails_now_and_then_is_asked_again_within_the_budget(likeliest, no_pauses):
    calls = []

    def moody(contexts):
        calls.append(contexts)
        if len(calls) % 9 == 3:
            raise ConnectionError("private")
        return likeliest(contexts)

    found = audit(moody)
    assert found.summary["failures"] == found.summary["retries"] > 0
    assert found.summary["words_unanswered"] == 0
    need = audit(likeliest).summary["queries"]
    calls.clear()
    short = audit(moody, budget=need).summary
    assert short["queries"] <= need
    assert short["budget_spent"]
    assert short["words_unanswered"] > 0


@pytest.mark.slow
def test_a_service_that_is_slow_or_silent_is_given_up_in_time(likeliest, monkeypatch, no_pauses):
    calls = []

    def slow(contexts):
        calls.append(contexts)
        if len(calls) == 2:
            time.sleep(1)
        return likeliest(contexts)

    found = audit(slow, timeout=0.5).summary
    assert (found["timeouts"], found["words_unanswered"]) == (1, 0)
    monkeypatch.setattr(service_module, "SILENCE", 0.01)
    calls.clear()
    audit(slow, monitor=(log := Told()))
    assert any("The service has not answered for 0 s" in line for line in log.lines)


@pytest.mark.slow
def test_few_unknown_and_missing_words_are_on_the_account(likeliest):
    scant = audit(lambda contexts: [[*a[:1], "neverheard"] for a in likeliest(contexts)]).summary
    assert scant["short_lists"] == scant["unknown_words"] == scant["queries"]

    def shy(contexts):
        answers = zip(contexts, likeliest(contexts), strict=True)
        return [None if len(context.words) == 4 else answer for context, answer in answers]

    found = audit(shy)
    assert found.summary["refused"] > 0
    left = found.summary["words_asked"] - found.summary["words_unanswered"]
    assert audited(found, "words").sum() < left < found.summary["words_asked"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [ConnectionError, SystemExit])
def test_a_service_that_never_answers_is_left_alone_soon_and_can_be_gone_on_with(
    likeliest, tmp_path, error, no_pauses
):
    def dead(contexts):
        raise error("private: " + " ".join(contexts[0].words))

    named = SimpleNamespace(ask=dead)
    sys.modules["service_that_dies"] = named
    given = {"out": tmp_path / "out", "attempts": 2}
    with pytest.raises(ModelError, match="service_that_dies:ask keeps failing, by query") as caught:
        audit("service_that_dies:ask", **given)
    assert error.__name__ in str(caught.value)
    assert "private" not in str(caught.value)
    with Store(tmp_path / "out.partial" / "work.sqlite") as store:
        assert dict(store.part("answer/")) == {}
        assert store["account"]["calls"] == 2 * 3
    assert not (tmp_path / "out").exists()
    named.ask = likeliest
    found = audit("service_that_dies:ask", **given).summary
    assert (found["failures"], found["words_unanswered"]) == (6, 0)
    del sys.modules["service_that_dies"]


def test_words_too_long_fill_no_disk(likeliest, tmp_path):
    calls = []

    def long(contexts):
        calls.append(contexts)
        return likeliest(contexts) if len(calls) < 3 else [["x" * 5_000_000] * 3] * len(contexts)

    with pytest.raises(ModelError, match="a word of 5,000,000 characters"):
        audit(long, out=tmp_path / "out")
    kept = tmp_path / "out.partial" / "work.sqlite"
    with Store(kept) as store:
        assert 0 < len(dict(store.part("answer/"))) < 64
    assert kept.stat().st_size < 200_000


@pytest.mark.slow
def test_answers_and_paid_calls_are_kept_and_nothing_is_asked_again(likeliest, tmp_path):
    seen, lost = [], []

    def ask(contexts):
        if len(seen) == 2 and not lost:
            lost.extend(contexts)
            raise KeyboardInterrupt
        seen.append([context.words for context in contexts])
        return likeliest(contexts)

    with pytest.raises(KeyboardInterrupt) as caught:
        audit(ask, out=tmp_path / "out")
    assert caught.value.__notes__ == [KEPT]
    found = audit(ask, out=tmp_path / "out")
    words = [words for group in seen for words in group]
    assert len(words) == len(set(words))
    assert found.summary["queries"] == len(words) + len(lost)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_budget_that_cannot_be_enough_is_refused_before_anything_is_asked(likeliest):
    calls = []
    with pytest.raises(DataError, match=r"`budget` 9 is too small: this audit needs \d+ queries"):
        audit(lambda contexts: calls.append(contexts), budget=9)
    assert calls == []
