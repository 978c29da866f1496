"""Defences compared by synthetic measurements: verdicts, numbers, fairness, guarantees, claim."""

import math
from dataclasses import replace

import numpy as np
import pytest

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


def canary_rows(exposure, copies, shuffled):
    """Rows of canaries, like those of an exposure."""
    columns = zip(exposure.tolist(), copies, shuffled.tolist(), strict=True)
    return tuple(
        {"phrase": f"canary {i}", "copies": n, "exposure": e, "shuffled_exposure": s,
         "at_ceiling": False}
        for i, (e, n, s) in enumerate(columns)
    )  # fmt: skip


def training(name, *, leak=9.0, worse=0.0, seed=0, **other):
    """A training with canaries of `leak` bits and losses `worse` nats higher per token."""
    shared_rng, rng = np.random.default_rng(0), np.random.default_rng(seed + 1)
    tokens = shared_rng.integers(5, 30, DOCUMENTS)
    loss = tokens * (4 + shared_rng.normal(0, 0.3, DOCUMENTS) + worse)
    loss = loss + tokens * rng.normal(0, 0.01, DOCUMENTS)
    exposure = leak + shared_rng.normal(0, 2, CANARIES) + rng.normal(0, 0.3, CANARIES)
    shuffled = 2 + rng.normal(0, 0.3, CANARIES)
    canaries = canary_rows(exposure, [1, 2, 5, 20] * (CANARIES // 4), shuffled)
    canaries += canary_rows(1.4 + rng.normal(0, 1, CANARIES), [0] * CANARIES, shuffled)
    scores = DocumentScores(loss=loss, tokens=tokens, right=tokens // 5)
    return MeasuredTraining(**{"name": name, "scores": scores, "canaries": canaries, **other})


def trainings(name, *, number=4, leak=9.0, seed=0, **other):
    """Trainings that differ only in their seed, by about 0.3 bits."""
    leaks = np.random.default_rng(seed + 1000).normal(leak, 0.3, number)
    seeds = range(100 * seed, 100 * seed + number)
    return [
        training(name, leak=bits, seed=s, **other) for bits, s in zip(leaks, seeds, strict=True)
    ]


PLAIN = trainings("plain")


def compared(*others, plain=PLAIN, **options):
    all_trainings = [t for group in (plain, *others) for t in group]
    return compare_defences(all_trainings, baseline="plain", **options)


def row_of(result, name="gold"):
    [row] = [row for row in result.rows if row["name"] == name]
    return row


def gold(**options):
    """Trainings with a defence that helps."""
    return trainings("gold", **{"leak": 4, "seed": 1, **options})


# Verdicts.


@pytest.mark.parametrize(
    ("measured", "verdict", "advice"),
    [
        (gold(), "helps", "gold lowers exposure by "),
        (gold(leak=9), "none", "No defence is shown to lower exposure at equal utility."),
        (gold(worse=0.3), "incomparable", "No defence is shown to lower exposure"),
        (gold(number=1), "too few", "No defence can be judged: a verdict needs 3 trainings"),
        (gold(number=2), "too few", "No defence can be judged: a verdict needs 3 trainings"),
        (gold(number=3), "helps", "gold lowers exposure by "),
    ],
)
def test_a_defence_helps_if_it_leaks_less_at_equal_perplexity(measured, verdict, advice):
    result = compared(measured)
    assert row_of(result)["verdict"] == verdict
    assert result.summary["recommended"] == ("gold" if verdict == "helps" else None)
    assert result.summary["advice"].startswith(advice)
    assert verdict != "helps" or " at equal utility (test perp" in result.summary["advice"]
    ends = [row_of(result)[f"exposure_change_{end}"] for end in ("low", "high")]
    assert (None in ends) == (len(measured) == 1)


@pytest.mark.parametrize("number", [1, 2])
def test_a_verdict_needs_three_undefended_trainings(number):
    row = row_of(compared(gold(leak=2), plain=PLAIN[:number]))
    assert row["verdict"] == "too few"
    assert row["exposure_change"] < -5


def test_the_baseline_row_has_no_difference():
    row = row_of(compared(gold()), "plain")
    assert row["undefended"]
    assert row["exposure_change"] is row["gap"] is None
    assert row["sentence"] == "The others are compared with this one."


def test_no_defence_is_needed_if_the_baseline_does_not_leak():
    result = compared([training("gold", leak=1.4, seed=1)], plain=[training("plain", leak=1.4)])
    assert result.summary["advice"].startswith("No defence is needed on this evidence: ")


@pytest.mark.slow
def test_equal_trainings_rarely_get_a_verdict():
    verdicts = [
        row_of(compared(trainings("same", seed=seed)), "same")["verdict"] for seed in range(1, 101)
    ]
    assert sum(kind in ("helps", "worse") for kind in verdicts) <= 9  # expected: at most 5


@pytest.mark.parametrize("weak_name", ["plain", "gold"])
def test_models_weaker_than_word_frequencies_get_no_verdict(weak_name):
    plain, other = (
        [replace(t, frequency_perplexity=40.0 if t.name == weak_name else 4000.0) for t in group]
        for group in (PLAIN, gold(leak=2))
    )
    result = compared(other, plain=plain)
    row, summary = row_of(result), result.summary
    assert (row["verdict"], summary["recommended"]) == ("useless", None)
    assert f"{weak_name} predicts no better than word frequencies" in row["sentence"]
    too_weak = "No defence can be judged: a compared model is too weak to audit."
    assert summary["answer"] == f"{too_weak} {row['sentence']}"
    assert len(summary["notes"]) == 1


def test_canaries_at_the_rank_ceiling_give_no_verdict():
    ceiling = {"exposure": 14.0, "at_ceiling": True}
    plain, other = (
        [
            replace(
                t, canaries=tuple(row | ceiling if row["copies"] else row for row in t.canaries)
            )
            for t in trainings(name, number=3, leak=40, seed=seed)
        ]
        for seed, name in enumerate(("plain", "gold"))
    )
    result = compared(other, plain=plain)
    assert (row_of(result)["verdict"], row_of(result)["at_ceiling"]) == ("unmeasured", 1)
    advice = "No defence can be judged: the canaries are more probable"
    assert result.summary["advice"].startswith(advice)
    assert "Plant fewer copies" in result.summary["answer"]


def test_missing_measurements_are_none():
    result = compared([MeasuredTraining(name="gold")], plain=[MeasuredTraining(name="plain")])
    row = row_of(result)
    assert row["verdict"] == "unmeasured"
    assert row["exposure"] is row["test_perplexity"] is row["completion_completed"] is None
    advice = "No defence can be judged: leakage and utility were not both measured."
    assert result.summary["advice"] == advice


@pytest.mark.parametrize(
    ("slow", "quick", "best"),
    [
        ({"leak": 4, "cost": {"tokens": 2000}}, {"leak": 4, "cost": {"tokens": 1100}}, "quick"),
        ({"leak": 2, "cost": {"tokens": 3000}}, {"leak": 6, "cost": {"tokens": 1000}}, "slow"),
    ],
)
def test_the_least_leaky_or_the_cheapest_of_ties_is_recommended(slow, quick, best):
    result = compared(
        trainings("slow", seed=1, **slow),
        trainings("quick", seed=2, **quick),
        plain=trainings("plain", cost={"tokens": 1000}),
    )
    assert result.summary["recommended"] == best
    assert row_of(result, "slow")["tokens_ratio"] == slow["cost"]["tokens"] / 1000
    tie = "Its leakage does not differ significantly from slow."
    assert (tie in result.summary["answer"]) == (best == "quick")


# Numbers.


def test_numbers_follow_their_definitions():
    defended = gold()
    row = row_of(compared(defended))
    means, plain = (
        [np.mean(t.bits("exposure", planted=True)) for t in group] for group in (defended, PLAIN)
    )
    assert row["exposure"] == pytest.approx(np.mean(means))
    assert (row["exposure_low"], row["exposure_high"]) == pytest.approx(mean(means).interval)
    assert row["exposure_change"] == pytest.approx(np.mean(means) - np.mean(plain))
    nats, plain_nats = (
        np.mean([t.scores.loss.sum() / t.scores.tokens.sum() for t in group])
        for group in (defended, PLAIN)
    )
    assert row["test_perplexity"] == pytest.approx(math.exp(nats))
    assert row["perplexity_ratio"] == pytest.approx(math.exp(nats - plain_nats))
    scores = defended[0].scores
    assert row["test_accuracy"] == pytest.approx(scores.right.sum() / scores.tokens.sum())
    for point in row["by_copies"]:
        exposures = [
            canary["exposure"]
            for t in defended
            for canary in t.canaries
            if canary["copies"] == point["copies"]
        ]
        assert point["exposure"] == pytest.approx(np.mean(exposures))
        assert point["canaries"] == len(exposures) / len(defended)


def test_intervals_of_differences_are_joint():
    defended, others = (
        trainings("gold", seed=1),
        [trainings(n, seed=s) for s, n in ((2, "b"), (3, "c"))],
    )
    single, joint = row_of(compared(defended)), row_of(compared(defended, *others))
    assert joint["exposure_change_high"] > single["exposure_change_high"]
    assert joint["exposure_high"] == single["exposure_high"]
    for names, level in (("a", 0.95), ("abcde", 0.99)):
        result = compared(*(trainings(name, seed=1) for name in names))
        assert result.summary["joint_confidence"] == level


def test_completion_is_counted_by_copies():
    kinds = [("canary", 1, True), ("canary", 1, False), ("canary", 5, True), ("control", 0, False)]
    attempts = tuple(
        {"kind": kind, "copies": copies, "greedy": greedy} for kind, copies, greedy in kinds
    )
    row = row_of(compared(gold(completion=Completion(attempts=attempts, prefix=1, beam=1))))
    assert (row["completion_completed"], row["completion_trials"]) == (8, 12)
    assert row["completion_control_trials"] == 4
    assert [point["completion_trials"] for point in row["by_copies"]] == [8, 0, 4, 0]


def test_gap_is_positive_when_users_with_few_samples_lose_more():
    codes = np.arange(DOCUMENTS) % USERS
    harmed = [
        replace(t, scores=replace(t.scores, loss=loss))
        for t in gold()
        for loss in [t.scores.loss + t.scores.tokens * 0.5 * (codes >= 7)]
    ]
    row = row_of(compared(harmed, users=codes, samples=100 - np.arange(USERS)))
    assert row["gap_low"] > 0
    assert row["correlation"] < 0
    assert row["users"] == USERS


def test_fairness_with_one_user_is_a_note():
    result = compared(gold(), users=np.zeros(DOCUMENTS, dtype=int), samples=np.array([9]))
    [note] = result.summary["notes"]
    assert note.startswith("Fairness between users: users must be at least 10")
    assert note.endswith("got one user only.")
    assert row_of(result)["gap"] is None


# Guarantees.


def audit(claimed, *, separated=True):
    """An audit of 400 coin flips, with scores that separate them perfectly or not at all."""
    canaries = tuple(Canary(f"c{i}", "coin-flip", (), i % 2) for i in range(400))
    planted = np.array([canary.planted for canary in canaries])
    scores = np.random.default_rng(0).normal(0, 1, 400) + 50 * planted * separated
    groups = scores[planted], scores[~planted]
    return CanaryAudit(
        canaries=canaries,
        scores=tuple(scores.tolist()),
        one_run=one_run_epsilon(*groups, delta=1e-5),
        f_dp=f_dp_epsilon(*groups, delta=1e-5),
        threshold=threshold_epsilon(*groups, delta=1e-5),
        separation=auc(*groups),
        copies=1,
        claimed=claimed,
        calibrated=False,
    )


GUARANTEE = Guarantee(epsilon=1.5, delta=1e-5, unit="sequence")


def test_measured_epsilon_confirms_or_refutes_the_guarantee():
    options = {"worse": 0.5, "leak": 9, "guarantee": GUARANTEE}
    consistent, refuted = (
        compared(gold(audit=audit(1.5, separated=separated), **options))
        for separated in (False, True)
    )
    row = row_of(consistent)
    assert (row["epsilon"], row["empirical_epsilon"], row["unit"]) == (1.5, 0.0, "sequence")
    assert row["audit_verdict"] == "consistent"
    guaranteed = "gold (ε = 1.5 at δ = 1e-5 per sequence) comes with a guarantee."
    assert consistent.summary["answer"].endswith(guaranteed)
    answer = refuted.summary["answer"]
    assert row_of(refuted)["empirical_epsilon"] > 1.5
    assert "gold claims ε = 1.5 at δ = 1e-5 per sequence, but at least" in answer
    assert answer.endswith("the guarantee does not hold.")
    assert "comes with a guarantee" not in answer


@pytest.mark.slow
def test_sequence_guarantee_is_converted_for_copies():
    settings = {"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000}
    summary = {"epsilon": 1.71, "delta": 1e-5, "unit": "sequence", "accountant": "rdp", **settings}
    guarantee, mechanism = Guarantee.of(summary), Mechanism(**settings, copies=2)
    assert guarantee.of_group(1) == 1.71
    assert guarantee.of_group(2) == pytest.approx(mechanism.epsilon(1e-5))
    assert GUARANTEE.of_group(2) is None


def test_user_guarantees_and_infinite_epsilon():
    user = Guarantee.of({"epsilon": 3.0, "delta": 1e-5, "unit": "user"})
    assert (user.unit, user.of_group(1)) == ("user", None)
    assert Guarantee.of({"epsilon": math.inf, "delta": 1e-5}) is None
    assert Guarantee.of({}) is None


# The claim.

ALIVE = Check("alive", "passed", "It predicts.")


def claimed(*groups):
    plain, *others = ([replace(t, alive=t.alive or ALIVE) for t in group] for group in groups)
    return compared(*others, plain=plain).claim


def test_the_claim_is_leak_or_no_leak_shown():
    leak = claimed(PLAIN, gold())
    assert leak.verdict == LEAK
    assert leak.estimate.low > 5
    none = claimed(trainings("plain", leak=1.4), gold(leak=1.4))
    assert none.verdict == NO_LEAK


def test_the_estimate_is_of_the_baseline_or_the_first_measured_training():
    assert claimed(gold(), PLAIN).estimate.name == "exposure of plain above controls"
    blind = [replace(t, canaries=()) for t in PLAIN]
    assert claimed(gold(), blind).estimate.name == "exposure of gold above controls"


DEAD = Check("alive", "failed", "Scores of dead are not finite: its weights are broken.")


@pytest.mark.parametrize(
    ("others", "verdict", "reason"),
    [
        (  # different files, equal measurements
            [replace(training("gold"), cost={"steps": n}) for n in range(3)], "too few",
            "gold has 1 independent training (3 were given, the others are copies); 3 are needed, "
            "with different seeds.",
        ),
        (
            [replace(t, name="gold") for t in PLAIN], "none",
            "gold has trainings that are copies of plain.",
        ),
        ([replace(t, alive=DEAD) for t in gold()], "useless", DEAD.sentence),
    ],
)  # fmt: skip
def test_copies_and_broken_models_are_undecided(others, verdict, reason):
    plain, others = (
        [replace(t, alive=t.alive or ALIVE) for t in group] for group in (PLAIN, others)
    )
    result = compared(others, plain=plain)
    assert row_of(result)["verdict"] == verdict
    assert result.claim.verdict == UNDECIDED
    assert result.claim.reasons == (reason,)
