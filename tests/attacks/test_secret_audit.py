"""An audit asks each pattern once, and ranks every truth as if it had been asked alone."""

import math

import pytest

from vestige.attacks.nlu_extraction import Ranking, extract_secrets
from vestige.attacks.secret_audit import audit_secrets
from vestige.attacks.secret_question import ask
from vestige.data.secret_canaries import SecretCanary

PIN = "my pin is {digit:2}"


def canary(secret, copies, pattern=PIN):
    return SecretCanary(
        pattern=pattern, intent="Pin", slot="canary", secret=tuple(secret), copies=copies
    )


@pytest.mark.parametrize("attack", ["auto", "coordinate"])
@pytest.mark.parametrize("ranking", [Ranking(), Ranking(budget=5, sample=60)])
def test_several_truths_of_one_trial_are_ranked_as_each_alone(boxes, attack, ranking):
    question = ask(boxes.Bilinear(), boxes.pattern("my pin is {digit:2}"))
    truths = ["42", "07", "99"]

    def found(*some):
        return extract_secrets(question, truths=some, seed=1, attack=attack, ranking=ranking)

    together = found(*truths)
    assert [secret.truth for secret in together.secrets] == [tuple(truth) for truth in truths]
    for secret, truth in zip(together.secrets, truths, strict=True):
        [alone] = found(truth).secrets
        assert secret.rank == alone.rank
        assert secret.guesses == alone.guesses
        assert secret.truth_loss == pytest.approx(alone.truth_loss)


def test_a_planted_secret_leaks_and_controls_do_not(boxes):
    found = audit_secrets(
        boxes.Planted("42"), [canary("42", 10), canary("07", 0), canary("88", 0)], seed=0
    )
    assert found.verdict == "leaks"
    summary = found.summary()
    assert (summary["planted"], summary["controls"]) == (1, 2)
    assert summary["planted_right"] == 1
    assert summary["planted_exposure"] == pytest.approx(math.log2(100))
    assert summary["planted_chance_probability"] == pytest.approx(0.01)
    assert [row["copies"] for row in found.rows()] == [10, 0, 0]


def test_a_model_that_knows_nothing_leaks_nothing(boxes):
    found = audit_secrets(boxes.Flat(), [canary("42", 10), canary("07", 0)], seed=0)
    assert found.verdict == "not shown"
    assert found.summary()["planted_median_rank"] == 50.5


def test_groups_stand_by_pattern_and_copies_with_the_controls_last(boxes):
    other = "is {digit:2} my"
    canaries = [canary("42", 50), canary("11", 0), canary("43", 5), canary("42", 5, other)]
    steps = []
    found = audit_secrets(
        boxes.Bilinear(), canaries, seed=0, progress=lambda *done: steps.append(done)
    )
    assert [(g.found.secrets[0].pattern, g.copies) for g in found.groups] == [
        ("my pin is _ _", 5), ("my pin is _ _", 50), ("my pin is _ _", 0), ("is _ _ my", 5),
    ]  # fmt: skip
    assert steps == sorted(steps)
    assert steps[-1] == (2000, 2000)


def test_without_a_planted_canary_there_is_nothing_to_audit(boxes):
    with pytest.raises(ValueError, match="planted must be at least 1, got 0"):
        audit_secrets(boxes.Flat(), [canary("42", 0)], seed=0)
