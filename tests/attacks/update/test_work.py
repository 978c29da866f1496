"""A search in units: stopped anywhere and continued it gives the same; what it reads is counted."""

import json
from dataclasses import replace
from itertools import count

import pytest

from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.proposals.openings import Openings
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import Effort, SeedAndExtend, seed_and_extend
from vestige.attacks.update.token_scores import token_score
from vestige.attacks.update.update_diff import null_scores, update_diff

SMALL = SeedAndExtend(
    proposals=(
        Samples(samples=12, length=8, alternatives=20, block=5, least=0.1),
        Openings(openings=5),
        Pairs(seeds=20),
    ),
    toll=0.3,
    surprise=0.1,
)
CONTEXTS = {(3, 4): "prompt 1", (5, 2, 6): "prompt 2"}


class Counting:
    """A model that counts the tokens it is given to read, a beginning as one."""

    def __init__(self, model):
        self.model, self.read_tokens = model, 0
        self.vocabulary, self.vocab_size, self.device = (
            model.vocabulary, model.vocab_size, model.device,
        )  # fmt: skip

    def start(self, n, *, anywhere=False):
        self.read_tokens += not anywhere
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state, tokens):
        self.read_tokens += len(tokens)
        return self.model.advance(state, tokens)

    def read(self, state, tokens):
        self.read_tokens += tokens.numel()
        return self.model.read(state, tokens)

    def logits(self, state):
        return self.model.logits(state)

    def log_probs(self, state):
        return self.model.log_probs(state)


@pytest.fixture
def models(random_table):
    return random_table(0, 12, 0.2), random_table(1, 12, 0.2)


def test_forward_tokens_are_what_the_models_read(models):
    before, after = map(Counting, models)
    for search in (SMALL, replace(SMALL, proposals=(Pairs(seeds=9, beam=2),))):
        before.read_tokens = after.read_tokens = 0
        pair = ModelPair(before, after, token_score("smoothed"))
        searched = seed_and_extend(pair, search, end=0, effort=Effort(contexts=CONTEXTS)).searched
        assert (searched.before, searched.after) == (before.read_tokens, after.read_tokens)
        assert (pair.cost.before, pair.cost.after) == (before.read_tokens, after.read_tokens)
        assert searched.complete


def _reached(clock, stop, _):
    return next(clock) >= stop


def test_a_search_that_was_stopped_goes_on_to_the_same_rows_wherever_it_was_stopped(models):
    effort = Effort(contexts=CONTEXTS)
    whole = update_diff(*models, search=SMALL, effort=effort)
    assert whole.findings
    for stop in range(whole.searched.units):
        kept = {}
        clock = count()
        first = replace(
            effort, kept=kept, until=lambda _, clock=clock, stop=stop: next(clock) >= stop
        )
        part = update_diff(*models, search=SMALL, effort=first)
        assert (part.searched.done, part.searched.complete) == (stop, False)
        kept = json.loads(json.dumps(kept))  # on disk between the two
        assert update_diff(*models, search=SMALL, effort=replace(effort, kept=kept)) == whole


def test_what_is_kept_is_not_read_again(models):
    kept = {}
    whole = update_diff(*models, search=SMALL, effort=Effort(kept=kept))
    pair = ModelPair(*models, token_score("smoothed"))
    searched = seed_and_extend(pair, SMALL, end=0, effort=Effort(kept=kept)).searched
    assert pair.cost.total == 0
    assert searched == whole.searched


def test_the_plan_names_about_as_many_units_and_tokens(models):
    pair = ModelPair(*models, token_score("smoothed"))
    told = []
    effort = Effort(contexts=CONTEXTS, progress=lambda *step: told.append(step))
    searched = seed_and_extend(pair, SMALL, end=0, effort=effort).searched
    units = SMALL.planned(pair, tuple(CONTEXTS)).units
    steps = [(done, max(done, units)) for done in range(searched.units + 1)]
    assert list(dict.fromkeys((done, of) for done, of, _ in told)) == steps
    assert {"sampling", "extending", "repairing"} <= {activity for _, _, activity in told}
    assert searched.units == pytest.approx(units, rel=0.5)
    samples = replace(
        SMALL, proposals=(Samples(samples=200, length=4, alternatives=0),), repaired=0
    )
    searched = seed_and_extend(pair, samples, end=0).searched
    assert samples.planned(pair).total == pytest.approx(searched.forward_tokens, rel=0.4)


def test_one_seed_gives_one_search_and_another_another(models):
    first, again = (update_diff(*models, search=SMALL) for _ in range(2))
    assert first == again
    pair = ModelPair(*models, token_score("smoothed"))
    texts = [seed_and_extend(pair, replace(SMALL, seed=n), end=0).phrases for n in range(2)]
    assert texts[0] != texts[1]


def test_nulls_are_kept_apart_and_a_stopped_one_does_not_count(models, random_table):
    nulls = [random_table(seed, 12, 0.2) for seed in (2, 3, 4)]
    kept = {}
    whole = null_scores(models[0], nulls, search=SMALL, effort=Effort(kept=kept))
    assert whole == null_scores(models[0], nulls, search=SMALL)
    last = [key for key in kept if key.startswith("2/")]
    for key in last[1:]:
        del kept[key]
    stopped = Effort(kept=dict(kept), until=lambda _: True)
    assert (
        null_scores(models[0], nulls, search=SMALL, effort=stopped).searches == (whole.searches[:2])
    )
    assert null_scores(models[0], nulls, search=SMALL, effort=Effort(kept=kept)) == whole


def test_a_prompt_is_a_start_and_findings_name_it(random_table):
    before, after = random_table(0, 12, 0.2), random_table(1, 12, 0.2)
    diff = update_diff(before, after, search=SMALL, effort=Effort(contexts=CONTEXTS))
    found = (*diff.findings, *diff.fragments)
    assert {finding.context for finding in found} <= {(), *CONTEXTS}
    assert any(finding.context for finding in found)
    assert {finding.proposal for finding in found} <= {"samples", "openings", "pairs"}


def test_proposals_of_one_name_are_refused():
    with pytest.raises(ValueError, match="proposals must be"):
        SeedAndExtend(proposals=(Openings(), Openings(openings=5)))
