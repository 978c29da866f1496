"""A function is queried within its budget, each context once, and Vestige caches its answers."""

import numpy as np
import pytest

from tests.audits.told import Told
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_inputs import UserInputs, remote_target
from vestige.audits.membership.user_texts import UserTexts
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError
from vestige.models.remote.options import RemoteOptions
from vestige.models.token_statistics import cached_outputs
from vestige.session import Session
from vestige.store import Store

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
    asked, texts = one.inputs.queries, list(one.inputs.texts.together())
    places = zip(asked.texts.tolist(), asked.positions.tolist(), strict=True)
    return [tuple(texts[text].split()[:at]) for text, at in places]


def test_a_rank_is_the_place_in_the_list_or_one_behind_it(tmp_path):
    one = service(Asked(), tmp_path)
    asked = one.inputs.queries
    words = [one.inputs.target.vocabulary.piece(token) for token in asked.tokens.tolist()]
    expected = [LISTED.index(word) + 1 if word in LISTED else 3 for word in words]
    assert one.ranks(asked).tolist() == expected


def test_a_context_is_sent_once_in_all_sessions(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path)
    first = one.ranks(one.inputs.queries)
    assert sorted(context.words for context in ask.seen) == sorted(set(contexts_of(one)))
    again = service(ask, tmp_path)
    assert np.array_equal(again.ranks(again.inputs.queries), first)
    assert len(ask.seen) == len(set(contexts_of(one))) == again.statistics["queries"]


def test_a_budget_of_the_different_contexts_is_enough_and_one_less_is_not(tmp_path):
    needed = len(set(contexts_of(service(Asked(), tmp_path))))
    enough = service(Asked(), tmp_path, budget=needed)
    enough.check_budget()
    assert (enough.ranks(enough.inputs.queries) > 0).all()
    short = service(Asked(), tmp_path, budget=needed - 1)
    with pytest.raises(DataError, match=f"this audit needs {needed} queries"):
        short.check_budget()


def test_before_words_are_selected_each_user_may_take_all_calls_and_one_is_tried(tmp_path):
    policy = QueryPolicy(how="informative", calls=2, k=2)
    probe = service(Asked(), tmp_path, policy=policy)
    most = sum(min(2, words) for words in probe.inputs.queries.counts().tolist()) + 1
    service(Asked(), tmp_path, policy=policy, budget=most).check_budget()
    with pytest.raises(DataError, match=f"needs up to {most} queries"):
        service(Asked(), tmp_path, policy=policy, budget=most - 1).check_budget()


def test_words_beyond_a_budget_have_no_rank(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path, budget=2)
    found = one.ranks(one.inputs.queries)
    answered = {context.words for context in ask.seen}
    assert len(ask.seen) == 2
    assert (found > 0).tolist() == [words in answered for words in contexts_of(one)]


def test_what_a_function_prints_is_no_output(tmp_path, capsys):
    one = service(Asked(), tmp_path)
    one.ranks(one.inputs.queries)
    said = capsys.readouterr()
    assert said.out == ""
    assert "noise" in said.err


def test_a_failing_function_is_refused_at_the_first_word_and_its_message_stays_its_own(tmp_path):
    one = service(Asked(fails=True), tmp_path)
    with pytest.raises(ModelError, match="m:ask keeps failing") as caught:
        one.probe()
    assert "no answer to the first query: RuntimeError" in str(caught.value)
    assert "gate" not in str(caught.value)


def test_a_function_that_answers_is_probed_with_one_word(tmp_path):
    ask = Asked()
    one = service(ask, tmp_path)
    one.probe()
    assert len(ask.seen) == 1


def test_there_are_no_statistics_before_anything_is_queried(tmp_path):
    assert service(Asked(), tmp_path).statistics == {}


def test_cached_ranks_are_named_by_weights_texts_and_words(tmp_path):
    inputs = service(Asked(), tmp_path).inputs
    backwards = MINE.take(np.array([1, 0]))
    other = service(Asked(), tmp_path, texts=backwards).inputs
    few = inputs.queries.take(np.arange(len(inputs.queries) - 1))
    keys = [
        inputs.key("a", inputs.queries),
        inputs.key("b", inputs.queries),
        inputs.key("a", few),
        other.key("a", other.queries),
    ]
    assert len(set(keys)) == len(keys)
    assert service(Asked(), tmp_path).inputs.key("a", inputs.queries) == keys[0]


@pytest.mark.parametrize(("listed", "noticed"), [(("re", "##d"), True), (("red", "##d"), False)])
def test_a_function_that_lists_pieces_of_words_is_noticed(tmp_path, listed, noticed):
    one = service(lambda contexts: [listed for _ in contexts], tmp_path)
    one.ranks(one.inputs.queries)
    assert any("pieces of words" in line for line in one.run.monitor.lines) is noticed
