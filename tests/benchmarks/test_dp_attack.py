"""The attack of `benchmarks/dp_attack.py` reaches, but does not exceed, a mechanism's bound."""

import math

import attacked_trainings as trainings
import dp_attack as attack
import numpy as np
import pytest
from attacked_trainings import DELTA
from dp_attack import Mechanism
from scipy.stats import norm

from vestige.metrics.f_dp_epsilon import GAUSSIAN
from vestige.training.new_models import new_model
from vestige.training.secret import Secret

NOISE, TRAININGS = 0.8, 20
STEPS = 3
DISTANCE = math.sqrt(STEPS) / NOISE
"""Largest distance between the scores of trainings with and without a record, in standard
deviations, by a Gaussian mechanism with these steps (Dong, Roth and Su 2022, Corollary 3.3)."""


def measure(setting):
    """(distance between the mean scores in standard deviations, standard deviation)."""
    start = new_model(trainings.WORDS, trainings.SHAPE, seed=0)
    adversary = attack.Adversary(setting, NOISE, start)
    scores = {
        member: [
            attack.attack_loop(setting, adversary, NOISE, member=member,
                            secret=Secret.of_seed(2 * seed + member))[1]
            for seed in range(TRAININGS)
        ]
        for member in (True, False)
    }  # fmt: skip
    deviation = math.sqrt(np.mean([np.var(scores[member], ddof=1) for member in scores]))
    return (np.mean(scores[True]) - np.mean(scores[False])) / deviation, deviation


def settings(*, broken):
    whole_batch = [s for s in trainings.settings() if s.sample_rate == 1 and s.path is None]
    return [s for s in whole_batch if s.broken is broken]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(3))
def test_a_sound_training_reveals_exactly_what_its_noise_allows(index):
    distance, deviation = measure(settings(broken=False)[index])
    assert distance == pytest.approx(DISTANCE, abs=4.5 * math.sqrt(2 / TRAININGS))
    assert deviation == pytest.approx(math.sqrt(STEPS), rel=4.5 / math.sqrt(4 * TRAININGS))


@pytest.mark.slow
@pytest.mark.parametrize("index", range(5))
def test_a_broken_training_reveals_more(index):
    distance, _ = measure(settings(broken=True)[index])
    # about twice as much with half the noise, 2.6 times by the batch, 3.4 times by position
    assert distance > 1.5 * DISTANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")
def test_a_record_moves_each_step_by_the_clipping_norm_under_known_masks():
    """With dropout, by the loop and by `PrivateTrainer`."""
    for setting in trainings.with_dropout():
        weights = [setting.path(1, 0.0, member) for member in (True, False)]
        steps = [(path[:-1] - path[1:]) * trainings.UNITS / trainings.RATE for path in weights]
        distance = np.linalg.norm(steps[0] - steps[1], axis=1) / trainings.CLIP
        np.testing.assert_allclose(distance, 1, rtol=2e-2)  # weights round the short steps
        assert np.isfinite(attack.attack_with_masks(setting, NOISE, member=True)[0])


@pytest.mark.slow
def test_impossible_error_rates_refute_a_mechanism():
    mechanism = Mechanism(1.0, STEPS)
    noise, mu = 2.0, math.sqrt(STEPS) / 2.0
    exact = GAUSSIAN.epsilon(mu, DELTA)
    for false in (0.05, 0.4):
        missed = norm.cdf(norm.ppf(1 - false) - mu)  # the most powerful test's
        assert mechanism.allows(noise, false, missed + 0.01)
        assert not mechanism.allows(noise, false, missed - 0.03)
    assert 0.9 * exact <= mechanism.least_epsilon(false, missed) <= 1.01 * exact
    assert mechanism.least_epsilon(0.5, 0.5) == 0.0
