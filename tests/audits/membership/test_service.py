"""A function as the target: answers are cached and each context is sent once."""

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


def test_calls_before_a_kill_count_for_the_budget(tmp_path):
    with Store(tmp_path / "work.sqlite") as store:
        store[ACCOUNT] = {"queries": 2, "calls": 1, "budget": None, "gave_up": False}
        model = ServiceModel(lambda contexts: [["end"]] * len(contexts), k=3, store=store, budget=4)
        answers, account = model.likeliest(CONTEXTS), model.statistics
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


def test_half_a_character_is_cached_like_other_words(tmp_path):
    for _ in range(2):
        with Store(tmp_path / "work.sqlite") as store:
            model = ServiceModel(lambda _: [["\ud800", "\x1b[31m"]], k=2, store=store)
            assert model.likeliest(CONTEXTS[:1]) == [("\ud800", "\x1b[31m")]
            assert model.statistics.queries == 1


# Queries of an audit to a function that always lists two words.

LISTED = ("red", "blue")
TEXTS = Corpus.from_texts(["red blue red", "red blue green"], users=["ann", "ann"])
REFERENCE = Corpus.from_texts(
    [f"{first} red {last}" for first in ("green", "blue") for last in ("red", "green", "blue")],
    users=[f"p{n}" for n in range(6)],
)


class RecordingFunction:
    """Lists the same words after every context, and records the contexts."""

    def __init__(self, listed=LISTED):
        self.listed, self.contexts = listed, []

    def __call__(self, contexts):
        self.contexts += contexts
        print("noise")
        return [self.listed for _ in contexts]


def service_of(function, folder, *, texts=TEXTS, policy=None, **options):
    run = Session("membership", {}, store=Store(folder / "work.sqlite"), monitor=RecordingMonitor())
    target = remote_target(run, "m:ask", function, REFERENCE, QueryOptions())
    independent = Check("independent", "passed", "Texts differ.")
    users = UserTexts(texts=texts, reference=REFERENCE, independent=independent)
    with cached_outputs(None, run.monitor) as outputs:
        return Service(
            run=run,
            inputs=UserInputs.of(target, users, policy or QueryPolicy(k=2)),
            options=RemoteOptions(**{"attempts": 1, **options}),
            outputs=outputs,
        )


def contexts_of(service):
    """The contexts of the queried words, naively."""
    queries, texts = service.inputs.queries, list(service.inputs.texts.all_texts())
    pairs = zip(queries.texts.tolist(), queries.positions.tolist(), strict=True)
    return [tuple(texts[text].split()[:position]) for text, position in pairs]


def test_a_rank_is_a_position_in_the_list_and_no_context_is_sent_twice(tmp_path, capsys):
    function = RecordingFunction()
    service = service_of(function, tmp_path)
    assert service.statistics == {}
    service.probe()
    assert len(function.contexts) == 1
    queries, vocabulary = service.inputs.queries, service.inputs.target.vocabulary
    words = [vocabulary.piece(token) for token in queries.tokens.tolist()]
    ranks = service.ranks(queries)
    assert ranks.tolist() == [LISTED.index(w) + 1 if w in LISTED else 3 for w in words]
    contexts = set(contexts_of(service))
    assert sorted(context.words for context in function.contexts) == sorted(contexts)
    resumed = service_of(function, tmp_path)
    assert np.array_equal(resumed.ranks(resumed.inputs.queries), ranks)
    assert len(function.contexts) == len(contexts) == resumed.statistics["queries"]
    output = capsys.readouterr()
    assert (output.out, "noise" in output.err) == ("", True)


def test_a_budget_must_cover_the_distinct_contexts(tmp_path):
    def most_calls(service):
        """Before words are selected each user may need all calls; one more is a trial."""
        return sum(min(2, words) for words in service.inputs.queries.counts().tolist()) + 1

    informative = QueryPolicy(select="informative", calls=2, k=2)
    for policy, least_budget, message in (
        (None, lambda service: len(set(contexts_of(service))), "needs {} queries"),
        (informative, most_calls, "needs up to {} queries"),
    ):
        function = RecordingFunction()
        least = least_budget(service_of(function, tmp_path, policy=policy))
        service_of(function, tmp_path, policy=policy, budget=least).check_budget()
        with pytest.raises(DataError, match=message.format(least)):
            service_of(function, tmp_path, policy=policy, budget=least - 1).check_budget()


def test_words_beyond_the_budget_have_no_rank(tmp_path):
    function = RecordingFunction()
    service = service_of(function, tmp_path, budget=2)
    ranks = service.ranks(service.inputs.queries)
    answered = {context.words for context in function.contexts}
    assert len(function.contexts) == 2
    assert (ranks > 0).tolist() == [words in answered for words in contexts_of(service)]


def test_the_key_of_cached_ranks_depends_on_weights_texts_and_words(tmp_path):
    inputs = service_of(RecordingFunction(), tmp_path).inputs
    other = service_of(RecordingFunction(), tmp_path, texts=TEXTS.take(np.array([1, 0]))).inputs
    few = inputs.queries.take(np.arange(len(inputs.queries) - 1))
    keys = {
        inputs.key("a", inputs.queries), inputs.key("b", inputs.queries),
        inputs.key("a", few), other.key("a", other.queries),
    }  # fmt: skip
    assert len(keys) == 4
    again = service_of(RecordingFunction(), tmp_path).inputs
    assert again.key("a", inputs.queries) == inputs.key("a", inputs.queries)


@pytest.mark.parametrize(("listed", "logged"), [(("re", "##d"), True), (("red", "##d"), False)])
def test_a_function_that_lists_pieces_of_words_is_logged(tmp_path, listed, logged):
    service = service_of(RecordingFunction(listed), tmp_path)
    service.ranks(service.inputs.queries)
    assert any("pieces of words" in line for line in service.run.monitor.lines) is logged
