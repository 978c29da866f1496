import json
import math
from dataclasses import replace

import numpy as np
import pytest

from vestige import results
from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.measurements import Guarantee, MeasuredTraining
from vestige.audits.exposure.epsilon import CanaryAudit
from vestige.audits.extraction.canaries import Completion
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.data.canaries.texts import Canary
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.estimates import auc, mean
from vestige.metrics.f_dp_epsilon import f_dp_epsilon, threshold_epsilon
from vestige.privacy.accounting import Mechanism
from vestige.training.evaluate import DocumentScores

CANARIES, DOCUMENTS, USERS = 40, 120, 12


def rows_of(exposure, copies, shuffled):
    """Rows of canaries, as an exposure has them."""
    columns = zip(exposure.tolist(), copies, shuffled.tolist(), strict=True)
    return tuple(
        {"phrase": f"canary {i}", "copies": n, "exposure": e, "shuffled_exposure": s,
         "at_ceiling": False}
        for i, (e, n, s) in enumerate(columns)
    )  # fmt: skip


def training(name, *, leak=9.0, worse=0.0, seed=0, **other):
    """A training whose canaries have `leak` bits and whose losses are `worse` nats a token more."""
    shared, own = np.random.default_rng(0), np.random.default_rng(seed + 1)
    tokens = shared.integers(5, 30, DOCUMENTS)
    loss = tokens * (4 + shared.normal(0, 0.3, DOCUMENTS) + worse)
    loss = loss + tokens * own.normal(0, 0.01, DOCUMENTS)
    exposure = leak + shared.normal(0, 2, CANARIES) + own.normal(0, 0.3, CANARIES)
    shuffled = 2 + own.normal(0, 0.3, CANARIES)
    canaries = rows_of(exposure, [1, 2, 5, 20] * (CANARIES // 4), shuffled)
    canaries += rows_of(1.4 + own.normal(0, 1, CANARIES), [0] * CANARIES, shuffled)
    scores = DocumentScores(loss=loss, tokens=tokens, right=tokens // 5)
    return MeasuredTraining(**{"name": name, "scores": scores, "canaries": canaries, **other})


def trainings(name, *, number=4, leak=9.0, seed=0, **other):
    """Some that differ in their seed alone, by 0.3 bits more or less."""
    moved = np.random.default_rng(seed + 1000).normal(leak, 0.3, number)
    seeds = range(100 * seed, 100 * seed + number)
    return [training(name, leak=own, seed=s, **other) for own, s in zip(moved, seeds, strict=True)]


def compared(*others, **settings):
    measured = [one for group in (trainings("plain"), *others) for one in group]
    return compare_defences(measured, baseline="plain", **settings)


def rows(found):
    return {row["name"]: row for row in found.rows}


def test_a_defence_that_leaks_less_at_equal_perplexity_is_taken():
    found = compared(trainings("gold", leak=4, seed=1, defence="goldfish"))
    assert found.summary["recommended"] == "gold"
    assert found.summary["advice"].startswith("gold lowers exposure by ")
    assert " at equal utility (test perplexity " in found.summary["advice"]
    assert rows(found)["gold"]["verdict"] == "helps"


def test_a_defence_that_changes_nothing_is_not_taken():
    found = compared(trainings("nothing", seed=1))
    assert found.summary["recommended"] is None
    assert rows(found)["nothing"]["verdict"] == "none"
    assert found.summary["advice"] == "No defence is shown to lower exposure at equal utility."


def test_less_leakage_bought_with_perplexity_is_not_comparable():
    found = compared(trainings("short", leak=4, worse=0.3, seed=1))
    assert rows(found)["short"]["verdict"] == "incomparable"
    assert found.summary["recommended"] is None


def test_where_the_undefended_training_leaks_nothing_none_is_needed():
    found = compare_defences(
        [training("plain", leak=1.4), training("gold", leak=1.4, seed=1)], baseline="plain"
    )
    assert found.summary["advice"].startswith("No defence is needed on this evidence: ")


def test_numbers_are_those_of_the_definitions():
    others, base = trainings("gold", leak=4, seed=1), trainings("plain")
    row = rows(compared(others))["gold"]
    means = [np.mean(one.bits("exposure", planted=True)) for one in others]
    assert row["exposure"] == pytest.approx(np.mean(means))
    assert (row["exposure_low"], row["exposure_high"]) == pytest.approx(mean(means).interval)
    plain = np.mean([one.bits("exposure", planted=True) for one in base])
    assert row["exposure_change"] == pytest.approx(np.mean(means) - plain)
    nats = [one.scores.loss.sum() / one.scores.tokens.sum() for one in others]
    assert row["test_perplexity"] == pytest.approx(math.exp(np.mean(nats)))
    before = np.mean([one.scores.loss.sum() / one.scores.tokens.sum() for one in base])
    assert row["perplexity_ratio"] == pytest.approx(math.exp(np.mean(nats) - before))
    tokens = others[0].scores.tokens
    assert row["test_accuracy"] == pytest.approx(others[0].scores.right.sum() / tokens.sum())
    for point in row["by_copies"]:
        own = [row["exposure"] for one in others
               for row in one.canaries
               if row["copies"] == point["copies"]]  # fmt: skip
        assert point["exposure"] == pytest.approx(np.mean(own))
        assert point["canaries"] == len(own) / len(others)


def test_one_training_of_each_gets_numbers_and_no_verdict():
    found = compare_defences([training("plain"), training("gold", leak=2, seed=1)],
                             baseline="plain")  # fmt: skip
    row = rows(found)["gold"]
    assert row["verdict"] == "too few"
    assert row["exposure_change"] < -5
    assert row["exposure_change_low"] is row["exposure_low"] is row["perplexity_ratio_low"] is None
    assert found.summary["answer"] == (
        "No defence can be judged: a verdict needs 3 trainings of each, with different seeds "
        "(train --seeds)."
    )


def test_a_verdict_takes_three_trainings_of_each():
    gold = trainings("gold", leak=2, seed=1)
    two = compare_defences([*trainings("plain", number=2), *gold], baseline="plain")
    three = compare_defences([*trainings("plain", number=3), *gold], baseline="plain")
    assert rows(two)["gold"]["verdict"] == "too few"
    assert rows(three)["gold"]["verdict"] == "helps"


@pytest.mark.slow
def test_identical_trainings_are_told_apart_in_at_most_one_comparison_of_twenty():
    told = [
        rows(compared(trainings("same", seed=seed)))["same"]["verdict"] for seed in range(1, 101)
    ]
    assert sum(kind in ("helps", "worse") for kind in told) <= 9  # 5 of 100, and chance


@pytest.mark.parametrize(("who", "sentences"), [("plain", 1), ("gold", 1)])
def test_a_model_no_better_than_word_frequencies_gets_no_verdict(who, sentences):
    alone = {name: 40.0 if name == who else 4000.0 for name in ("plain", "gold")}
    groups = [
        [replace(one, frequency_perplexity=alone[one.name]) for one in made]
        for made in (trainings("plain"), trainings("gold", leak=2, seed=1))
    ]
    found = compare_defences([one for made in groups for one in made], baseline="plain")
    assert rows(found)["gold"]["verdict"] == "useless"
    assert f"{who} predicts no better than word frequencies" in rows(found)["gold"]["sentence"]
    weak = "No defence can be judged: a compared model is too weak to audit."
    assert found.summary["answer"] == f"{weak} {rows(found)['gold']['sentence']}"
    assert len(found.summary["notes"]) == sentences
    assert found.summary["recommended"] is None


def test_canaries_past_what_ranks_resolve_tell_nothing():
    def stuck(name, seed):
        made = training(name, leak=40, seed=seed)
        most = {"exposure": 14.0, "at_ceiling": True}
        return replace(
            made, canaries=tuple(row | most if row["copies"] else row for row in made.canaries)
        )

    names = ["plain"] * 3 + ["gold"] * 3
    found = compare_defences([stuck(n, i) for i, n in enumerate(names)], baseline="plain")
    assert rows(found)["gold"]["verdict"] == "unmeasured"
    assert rows(found)["gold"]["at_ceiling"] == 1
    assert found.summary["advice"].startswith(
        "No defence can be judged: the canaries are more probable"
    )
    assert "Plant fewer copies" in found.summary["answer"]


def test_the_undefended_row_has_no_difference_from_itself():
    row = rows(compared(trainings("gold", seed=1)))["plain"]
    assert row["undefended"]
    assert row["exposure_change"] is None
    assert row["gap"] is None
    assert row["sentence"] == "The others are compared with this one."


def reading(tokens):
    return {"tokens": tokens}


def test_of_two_that_help_alike_the_cheaper_is_taken_and_the_other_named():
    base = trainings("plain", cost=reading(1000))
    slow = trainings("slow", leak=4, seed=1, cost=reading(2000))
    quick = trainings("quick", leak=4, seed=2, cost=reading(1100))
    found = compare_defences([*base, *slow, *quick], baseline="plain")
    assert found.summary["recommended"] == "quick"
    assert "Its leakage does not differ significantly from slow." in found.summary["answer"]
    assert rows(found)["slow"]["tokens_ratio"] == 2


def test_the_one_that_leaks_least_for_sure_is_taken_whatever_it_costs():
    base = trainings("plain", cost=reading(1000))
    best = trainings("slow", leak=2, seed=1, cost=reading(3000))
    other = trainings("quick", leak=6, seed=2, cost=reading(1000))
    found = compare_defences([*base, *best, *other], baseline="plain")
    assert found.summary["recommended"] == "slow"


def test_intervals_of_differences_hold_together():
    one = rows(compared(trainings("a", seed=1)))["a"]
    two = rows(compared(trainings("a", seed=1), trainings("b", seed=2), trainings("c", seed=3)))[
        "a"
    ]
    assert two["exposure_change_high"] > one["exposure_change_high"]
    assert two["exposure_high"] == one["exposure_high"]
    levels = [compared(*(trainings(n, seed=1) for n in names)).summary["joint_confidence"]
              for names in ("a", "abcde")]  # fmt: skip
    assert levels == [0.95, 0.99]


def test_users_pay_differently():
    codes = np.arange(DOCUMENTS) % USERS
    harmed = []
    for one in trainings("gold", leak=4, seed=1):
        loss = one.scores.loss + one.scores.tokens * 0.5 * (codes >= 7)
        harmed.append(replace(one, scores=replace(one.scores, loss=loss)))
    found = compared(harmed, users=codes, samples=100 - np.arange(USERS))
    row = rows(found)["gold"]
    assert row["gap_low"] > 0
    assert row["correlation"] < 0
    assert row["users"] == USERS


def test_one_user_only_leaves_fairness_out_and_says_why():
    found = compared(
        trainings("gold", seed=1), users=np.zeros(DOCUMENTS, dtype=int), samples=np.array([9])
    )
    [note] = found.summary["notes"]
    assert note.startswith("Fairness between users: users must be at least 10")
    assert note.endswith("got one user only.")
    assert rows(found)["gold"]["gap"] is None


def test_what_was_not_measured_is_none_and_not_an_error():
    bare = [MeasuredTraining(name="plain"), MeasuredTraining(name="gold")]
    found = compare_defences(bare, baseline="plain")
    row = rows(found)["gold"]
    assert row["verdict"] == "unmeasured"
    assert row["exposure"] is row["test_perplexity"] is row["completion_completed"] is None
    nothing = "No defence can be judged: leakage and utility were not both measured."
    assert found.summary["advice"] == nothing


def audit(claimed, *, told=True):
    """400 coin flips that the scores tell wholly, or not at all."""
    scores = np.random.default_rng(0).normal(0, 1, 400)
    canaries = tuple(Canary(f"c{i}", "coin-flip", (), i % 2) for i in range(400))
    inside = np.array([one.planted for one in canaries])
    scores = scores + 50 * inside * told
    return CanaryAudit(
        canaries=canaries,
        scores=tuple(scores.tolist()),
        one_run=one_run_epsilon(scores[inside], scores[~inside], delta=1e-5),
        f_dp=f_dp_epsilon(scores[inside], scores[~inside], delta=1e-5),
        threshold=threshold_epsilon(scores[inside], scores[~inside], delta=1e-5),
        separation=auc(scores[inside], scores[~inside]),
        copies=1,
        claimed=claimed,
        calibrated=False,
    )


CLAIM = Guarantee(epsilon=1.5, delta=1e-5, unit="sequence")


def test_claims_and_measures_of_privacy_stand_side_by_side():
    kept = audit(1.5, told=False)
    found = compared(trainings("dp", worse=0.5, seed=1, guarantee=CLAIM, audit=kept))
    row = rows(found)["dp"]
    assert (row["epsilon"], row["empirical_epsilon"], row["unit"]) == (1.5, 0.0, "sequence")
    assert row["audit_verdict"] == "consistent"
    guaranteed = "dp (ε = 1.5 at δ = 1e-5 per sequence) comes with a guarantee."
    assert found.summary["answer"].endswith(guaranteed)


def test_a_refuted_claim_is_no_guarantee():
    found = compared(trainings("dp", worse=0.5, seed=1, guarantee=CLAIM, audit=audit(1.5)))
    assert rows(found)["dp"]["empirical_epsilon"] > 1.5
    answer = found.summary["answer"]
    assert "dp claims ε = 1.5 at δ = 1e-5 per sequence, but at least" in answer
    assert answer.endswith("the guarantee does not hold.")
    assert "comes with a guarantee" not in answer


@pytest.mark.slow
def test_a_claim_for_one_sequence_is_converted_for_copies():
    known = {"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000, "accountant": "rdp"}
    claim = Guarantee.of({"epsilon": 1.71, "delta": 1e-5, "unit": "sequence", **known})
    assert claim.of_group(1) == 1.71
    numbers = {name: known[name] for name in ("noise_multiplier", "sample_rate", "steps")}
    mechanism = Mechanism(**numbers, copies=2)
    assert claim.of_group(2) == pytest.approx(mechanism.epsilon(1e-5))
    assert CLAIM.of_group(2) is None


def test_a_claim_for_users_is_not_tested_with_single_texts():
    assert Guarantee(epsilon=3.0, delta=1e-5, unit="user").of_group(1) is None


def test_an_infinite_epsilon_is_no_guarantee():
    assert Guarantee.of({"epsilon": math.inf, "delta": 1e-5}) is None
    assert Guarantee.of({"epsilon": 3.0, "delta": 1e-5, "unit": "user"}).unit == "user"
    assert Guarantee.of({}) is None


def test_completion_stands_by_copies():
    kinds = [("canary", 1, True), ("canary", 1, False), ("canary", 5, True), ("control", 0, False)]
    attempts = tuple(
        {"kind": kind, "copies": copies, "greedy": greedy} for kind, copies, greedy in kinds
    )
    told = Completion(attempts=attempts, prefix=1, beam=1)
    row = rows(compared(trainings("gold", seed=1, completion=told)))["gold"]
    assert (row["completion_completed"], row["completion_trials"]) == (8, 12)
    assert row["completion_control_trials"] == 4
    assert [p["completion_trials"] for p in row["by_copies"]] == [8, 0, 4, 0]


def test_the_result_can_be_saved_and_read(tmp_path):
    found = compared(trainings("gold", leak=4, seed=1))
    found.save(tmp_path / "run")
    again = results.load(tmp_path / "run")
    assert again.result == "DefenceComparison"
    assert again.rows == list(found.rows)
    assert "NaN" not in json.dumps(again.summary)


ALIVE = Check("alive", "passed", "It predicts.")


def claimed(*groups):
    measured = [replace(one, alive=one.alive or ALIVE) for group in groups for one in group]
    return compare_defences(measured, baseline="plain").claim


def test_trainings_that_leak_are_claimed_to():
    claim = claimed(trainings("plain"), trainings("gold", leak=4, seed=1))
    assert claim.verdict == LEAK
    assert claim.estimate.low > 5


def test_the_estimate_is_of_the_undefended_or_else_of_the_first_that_was_measured():
    gold = trainings("gold", leak=4, seed=1)
    assert claimed(gold, trainings("plain")).estimate.name == "exposure of plain above controls"
    blind = [replace(one, canaries=()) for one in trainings("plain")]
    assert claimed(gold, blind).estimate.name == "exposure of gold above controls"


def test_trainings_that_leak_nothing_are_claimed_to_where_it_would_show():
    claim = claimed(trainings("plain", leak=1.4), trainings("gold", leak=1.4, seed=1))
    assert claim.verdict == NO_LEAK


def test_three_copies_of_one_training_count_as_one():
    """Whatever their files say: what was measured of them is the same."""
    copies = [replace(training("gold"), cost={"steps": n}) for n in range(3)]
    found = compare_defences(
        [replace(one, alive=ALIVE) for one in (*trainings("plain"), *copies)], baseline="plain"
    )
    assert rows(found)["gold"]["verdict"] == "too few"
    assert found.claim.verdict == UNDECIDED
    assert found.claim.reasons == (
        "gold has 1 independent training (3 were given, the others are copies); 3 are needed, with "
        "different seeds.",
    )


def test_copies_of_the_undefended_trainings_under_another_name_decide_nothing():
    plain = trainings("plain")
    claim = claimed(plain, [replace(one, name="copy") for one in plain])
    assert claim.verdict == UNDECIDED
    assert claim.reasons == ("copy has trainings that are copies of plain.",)


def test_a_model_that_predicts_nothing_is_compared_with_none():
    dead = Check("alive", "failed", "Scores of dead are not finite: its weights are broken.")
    found = compare_defences(
        [*trainings("plain"), *(replace(one, alive=dead) for one in trainings("dead", seed=1))],
        baseline="plain",
    )
    assert rows(found)["dead"]["verdict"] == "useless"
    assert found.claim.verdict == UNDECIDED
