"""The distinguishing attack of `benchmarks/dp_attack.py`, small: it reaches what the mechanism
gives away, finds no more in a sound training, and more in one that is broken."""

import math

import attacked_trainings as trainings
import dp_attack as attack
import numpy as np
import pytest
from mechanism_bounds import DELTA, Mechanism
from scipy.stats import norm

from vestige.metrics.f_dp_epsilon import GAUSSIAN
from vestige.training.new_models import new_model
from vestige.training.secret import Secret

NOISE, TRAININGS = 0.8, 20
STEPS = 3
DISTANCE = math.sqrt(STEPS) / NOISE
"""In deviations, between the scores of trainings with the record and without it: the most that a
Gaussian mechanism of these steps gives away (Dong, Roth and Su 2022, Corollary 3.3)."""


def found(setting):
    """The distance that the attack finds, in deviations that the setting states."""
    start = new_model(trainings.WORDS, trainings.SHAPE, seed=0)
    adversary = attack.Adversary(setting, NOISE, start)
    scores = {
        member: [
            attack.attacked(setting, adversary, NOISE, member=member,
                            secret=Secret.of_seed(2 * seed + member))[1]
            for seed in range(TRAININGS)
        ]
        for member in (True, False)
    }  # fmt: skip
    deviation = math.sqrt(np.mean([np.var(scores[member], ddof=1) for member in scores]))
    return (np.mean(scores[True]) - np.mean(scores[False])) / deviation, deviation


def settings(*, broken):
    every = (s for s in trainings.settings() if s.sample_rate == 1 and s.path is None)
    return [s for s in every if s.broken is broken]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(3))
def test_a_sound_training_gives_away_what_its_noise_allows_and_no_more(index):
    setting = settings(broken=False)[index]
    distance, deviation = found(setting)
    assert distance == pytest.approx(DISTANCE, abs=4.5 * math.sqrt(2 / TRAININGS))
    assert deviation == pytest.approx(math.sqrt(STEPS), rel=4.5 / math.sqrt(4 * TRAININGS))


@pytest.mark.slow
@pytest.mark.parametrize("index", range(5))
def test_a_broken_training_gives_away_more(index):
    setting = settings(broken=True)[index]
    distance, _ = found(setting)
    # about twice as much with half the noise, 2.6 times by the batch, 3.4 times by place
    assert distance > 1.5 * DISTANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")
def test_a_record_moves_each_step_by_the_clipping_norm_under_known_masks():
    """With dropout, by the loop and by `PrivateTrainer`."""
    for setting in trainings.with_dropout():
        weights = [setting.path(1, 0.0, member) for member in (True, False)]
        added = [(path[:-1] - path[1:]) * trainings.UNITS / trainings.RATE for path in weights]
        moved = np.linalg.norm(added[0] - added[1], axis=1) / trainings.CLIP
        np.testing.assert_allclose(moved, 1, rtol=2e-2)  # steps are short: weights round them
        assert np.isfinite(attack.attacked_with_masks(setting, NOISE, member=True)[0])


@pytest.mark.slow
def test_a_mechanism_is_refuted_by_error_rates_that_it_cannot_have():
    mechanism = Mechanism(1.0, STEPS)
    noise, mu = 2.0, math.sqrt(STEPS) / 2.0
    exact = GAUSSIAN.epsilon(mu, DELTA)
    for false in (0.05, 0.4):
        missed = norm.cdf(norm.ppf(1 - false) - mu)  # the most powerful test's
        assert mechanism.allows(noise, false, missed + 0.01)
        assert not mechanism.allows(noise, false, missed - 0.03)
    assert 0.9 * exact <= mechanism.least(false, missed) <= 1.01 * exact
    assert mechanism.least(0.5, 0.5) == 0.0
