"""A callable is asked within its budget, each context once, and its answers are kept."""

import numpy as np
import pytest

from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError
from vestige.monitor import SILENT
from vestige.workflows.audit_inputs import AuditInputs, AuditTexts
from vestige.workflows.audit_options import ServiceSettings
from vestige.workflows.audit_run import rank_key
from vestige.workflows.audit_service import Service
from vestige.workflows.audit_target import service_target

from .asked import Told

LISTED = ("red", "blue")
MINE = Corpus.from_texts(["red blue red", "red blue green"], users=["ann", "ann"])
OTHERS = Corpus.from_texts(
    [f"{one} red {two}" for one in ("green", "blue") for two in ("red", "green", "blue")],
    users=[f"p{n}" for n in range(6)],
)


class Asked:
    """A callable that lists the same two words, and keeps what it is asked."""

    def __init__(self, fails=False):
        self.seen, self.fails = [], fails

    def __call__(self, contexts):
        if self.fails:
            raise RuntimeError("gate")
        self.seen += contexts
        print("noise")
        return [LISTED for _ in contexts]


def service(ask, folder, *, texts=MINE, show_secrets=False, policy=None, **settings):
    chosen = ServiceSettings(**{"attempts": 1, **settings})
    target = service_target(ask, OTHERS, chosen, name="m:ask")
    independent = Check("independent", "passed", "Texts differ.")
    parts = AuditTexts(texts=texts, reference=OTHERS, independent=independent)
    inputs = AuditInputs.of(target, parts, seed=0)
    return Service(
        inputs=inputs,
        policy=policy or QueryPolicy(k=2),
        settings=chosen,
        answers=folder / "answers.sqlite",
        show_secrets=show_secrets,
        monitor=SILENT,
    )


def contexts_of(one):
    """The contexts of the queried words, naively."""
    asked, texts = one.inputs.asked, list(one.inputs.parts.together())
    places = zip(asked.texts.tolist(), asked.positions.tolist(), strict=True)
    return [tuple(texts[text].split()[:at]) for text, at in places]


def test_a_rank_is_the_place_in_the_list_or_one_behind_it(tmp_path):
    one = service(Asked(), tmp_path)
    asked = one.inputs.asked
    words = [one.inputs.target.vocabulary.piece(token) for token in asked.tokens.tolist()]
    expected = [LISTED.index(word) + 1 if word in LISTED else 3 for word in words]
    assert one.ranks(asked).tolist() == expected


def test_a_context_is_sent_once_in_all_sessions(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path)
    first = one.ranks(one.inputs.asked)
    assert sorted(context.words for context in ask.seen) == sorted(set(contexts_of(one)))
    again = service(ask, tmp_path)
    assert np.array_equal(again.ranks(again.inputs.asked), first)
    assert len(ask.seen) == len(set(contexts_of(one))) == again.statistics["queries"]


def test_a_budget_of_the_different_contexts_is_enough_and_one_less_is_not(tmp_path):
    needed = len(set(contexts_of(service(Asked(), tmp_path))))
    enough = service(Asked(), tmp_path, budget=needed)
    enough.afford(enough.inputs.asked)
    assert (enough.ranks(enough.inputs.asked) > 0).all()
    short = service(Asked(), tmp_path, budget=needed - 1)
    with pytest.raises(DataError, match=f"this audit takes {needed} queries"):
        short.afford(short.inputs.asked)


def test_before_words_are_selected_each_user_may_take_all_calls_and_one_is_tried(tmp_path):
    policy = QueryPolicy(how="informative", calls=2, k=2)
    probe = service(Asked(), tmp_path, policy=policy)
    most = sum(min(2, words) for words in probe.inputs.asked.counts().tolist()) + 1
    service(Asked(), tmp_path, policy=policy, budget=most).afford_most(probe.inputs.asked)
    with pytest.raises(DataError, match=f"takes up to {most} queries"):
        service(Asked(), tmp_path, policy=policy, budget=most - 1).afford_most(probe.inputs.asked)


def test_words_beyond_a_budget_have_no_rank(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path, budget=2)
    found = one.ranks(one.inputs.asked)
    answered = {context.words for context in ask.seen}
    assert len(ask.seen) == 2
    assert (found > 0).tolist() == [words in answered for words in contexts_of(one)]


def test_what_a_callable_prints_is_no_output(tmp_path, capsys):
    one = service(Asked(), tmp_path)
    one.ranks(one.inputs.asked)
    said = capsys.readouterr()
    assert said.out == ""
    assert "noise" in said.err


@pytest.mark.parametrize("show_secrets", [False, True])
def test_a_failing_callable_is_refused_at_the_first_word(tmp_path, show_secrets):
    one = service(Asked(fails=True), tmp_path, show_secrets=show_secrets)
    with pytest.raises(ModelError, match="m:ask fails again and again") as caught:
        one.probe(one.inputs.asked)
    assert "the first query was not answered: RuntimeError" in str(caught.value)
    assert ("gate" in str(caught.value)) is show_secrets


def test_a_callable_that_answers_is_probed_with_one_word(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path)
    one.probe(one.inputs.asked)
    assert len(ask.seen) == 1


def test_there_are_no_statistics_before_anything_is_asked(tmp_path):
    assert service(Asked(), tmp_path).statistics == {}


def test_cached_ranks_are_named_by_weights_texts_and_words(tmp_path):
    inputs = service(Asked(), tmp_path).inputs
    backwards = MINE.take(np.array([1, 0]))
    other = service(Asked(), tmp_path, texts=backwards).inputs
    few = inputs.asked.take(np.arange(len(inputs.asked) - 1))
    keys = [
        rank_key("a", inputs, inputs.asked),
        rank_key("b", inputs, inputs.asked),
        rank_key("a", inputs, few),
        rank_key("a", other, other.asked),
    ]
    assert len(set(keys)) == len(keys)
    assert rank_key("a", service(Asked(), tmp_path).inputs, inputs.asked) == keys[0]


@pytest.mark.parametrize(("listed", "noticed"), [(("re", "##d"), True), (("red", "##d"), False)])
def test_a_callable_that_lists_pieces_of_words_is_noticed(tmp_path, listed, noticed):
    one = service(lambda contexts: [listed for _ in contexts], tmp_path)
    one.monitor = told = Told()
    one.ranks(one.inputs.asked)
    assert any("pieces of words" in line for line in told.lines) is noticed
