"""An audit of planted utterances: one search per pattern, one rank per secret, one verdict."""

import math

import numpy as np
import pytest

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.searches import coordinate_descent
from vestige.audits.extraction.unknown_words import extract_secrets
from vestige.audits.extraction.utterances_audit import audit_secrets
from vestige.claims import LEAK, UNDECIDED
from vestige.data.canaries.patterns import draw_secrets
from vestige.data.canaries.utterances import SecretCanary

PIN, LONGER = "my pin is {digit:2}", "my pin is {digit:3}"


def canary(secret, copies, pattern=PIN):
    return SecretCanary(
        pattern=pattern, intent="Pin", slot="canary", secret=tuple(secret), copies=copies
    )


PLANTED_AND_CONTROL = [canary("42", 10), canary("07", 0)]


def audit(model, canaries=PLANTED_AND_CONTROL, seed=0, **options):
    return audit_secrets(model, canaries, seed=seed, **options)


@pytest.mark.parametrize("search", [None, coordinate_descent])
@pytest.mark.parametrize("ranking", [{}, {"budget": 5, "sample": 60}])
def test_several_truths_of_a_trial_have_the_rank_of_each_alone(search, ranking):
    objective = objective_of(boxes.Bilinear(), boxes.pattern(PIN))
    truths = ["42", "07", "99"]

    def extracted(*truths):
        return extract_secrets(objective, truths=truths, seed=1, search=search, **ranking)

    together = extracted(*truths)
    assert [secret["truth"] for secret in together.secrets] == [" ".join(truth) for truth in truths]
    for secret, truth in zip(together.secrets, truths, strict=True):
        [alone] = extracted(truth).secrets
        for name in ("rank", "rank_low", "rank_high", "rank_known", "compared_with", "guesses"):
            assert secret[name] == alone[name]
        assert secret["truth_loss"] == pytest.approx(alone["truth_loss"])


def test_a_planted_secret_leaks_and_controls_do_not():
    result = audit(boxes.Planted("42"), [*PLANTED_AND_CONTROL, canary("88", 0)])
    assert result.verdict == LEAK
    summary = result.summary
    assert (summary["planted"], summary["controls"], summary["drawn"]) == (1, 2, 97)
    assert summary["planted_right"] == 1
    assert summary["planted_exposure"] == pytest.approx(math.log2(100))
    assert summary["p_value"] == summary["p_least"] == 0.01
    rows = list(result.rows)
    assert [row["copies"] for row in rows] == [10] + [0] * 99
    assert [row["drawn"] for row in rows] == [False] * 3 + [True] * 97
    assert (rows[0]["controls_before"], rows[0]["controls_asked"]) == (0, 99)
    assert rows[0]["guess"] == "4 2"
    assert rows[3]["guess"] is None
    assert len({row["truth"] for row in rows}) == 100


def test_controls_with_good_ranks_do_not_hide_a_leak():
    (best,) = extract_secrets(objective_of(boxes.Bilinear(), boxes.pattern(LONGER)), seed=0).secrets
    order = [guess.split() for guess in best["guesses"]]
    canaries = [canary(secret, 10 * (n == 0), LONGER) for n, secret in enumerate(order[:4])]
    result = audit(boxes.Bilinear(), canaries)
    assert result.verdict == LEAK
    assert result.summary["p_value"] == 1 / 1000
    assert result.summary["controls_p_value"] <= 0.01


def test_with_few_or_no_controls_the_verdict_is_undecided():
    canaries = [canary("42", 10), *(canary(f"0{digit}", 0) for digit in range(9))]
    result = audit(boxes.Planted("42"), canaries, controls=0)
    assert result.summary["p_value"] == result.summary["p_least"] == 0.1
    assert result.verdict == UNDECIDED
    alone = audit(boxes.Planted("42"), canaries[:1], controls=0)
    assert (alone.claim.test, alone.verdict) == (None, UNDECIDED)
    with pytest.raises(ValueError, match="planted must be at least 1, got 0"):
        audit(boxes.Flat(), canaries[1:])


@pytest.mark.slow
def test_many_secrets_with_ranks_slightly_above_average_are_a_leak():
    model = boxes.Bilinear()
    objective = objective_of(model, boxes.pattern(LONGER))
    secrets = [f"{n:03}" for n in range(1000)]
    losses = objective.losses(objective.indices(secrets)[None])[0]
    order = [secrets[index] for index in losses.argsort().tolist()]
    result = audit(model, [canary(secret, 10, LONGER) for secret in order[50:350:15]])
    assert result.verdict == LEAK
    assert result.summary["p_of_first"] > 0.1
    assert result.summary["p_of_all"] < 0.001


def test_a_model_that_knows_nothing_has_the_worst_rank():
    result = audit(boxes.Flat())
    assert result.verdict == UNDECIDED
    assert not result.claim.test.significant
    assert result.summary["p_value"] == 1
    assert result.summary["planted_median_rank"] == 100


@pytest.mark.slow
@pytest.mark.parametrize("planted", [1, 4])
def test_the_error_rate_of_secrets_that_the_model_never_read_is_the_stated_level(planted):
    """One model, which prefers some secrets, and random secrets."""
    p_values = []
    for seed in range(100):
        secrets = draw_secrets(boxes.pattern(PIN), number=planted + 3, seed=1000 + seed)
        canaries = [canary(secret, 9 * (n < planted)) for n, secret in enumerate(secrets)]
        result = audit(boxes.Bilinear(), canaries, seed=seed, controls=60)
        p_values.append(result.summary["p_value"])
    for level in (0.05, 0.2):
        assert np.mean(np.array(p_values) <= level) <= level + 3 * np.sqrt(level / 100)


def test_rows_are_sorted_by_pattern_and_copies_with_controls_last():
    other = "is {digit:2} my"
    canaries = [canary("42", 50), canary("11", 0), canary("43", 5), canary("42", 5, other)]
    steps = []
    result = audit(boxes.Bilinear(), canaries, progress=lambda *done: steps.append(done))
    rows = ((row["pattern"], row["copies"], row["drawn"]) for row in result.rows)
    assert list(dict.fromkeys(rows)) == [
        ("my pin is _ _", 5, False), ("my pin is _ _", 50, False), ("my pin is _ _", 0, False),
        ("my pin is _ _", 0, True), ("is _ _ my", 5, False), ("is _ _ my", 0, True),
    ]  # fmt: skip
    assert steps == sorted(steps)
    assert steps[-1] == (2000, 2000)


def test_dependent_secrets_have_no_interval_of_accuracy():
    canaries = [canary("42", 10), canary("07", 10), canary("88", 0)]
    summary = audit(boxes.Planted("42"), canaries).summary
    assert (summary["planted_right"], summary["planted_accuracy"]) == (1, 0.5)
    assert summary["planted_accuracy_low"] is None
