"""The distinguishing attack of `benchmarks/dp_attack.py`, small: it reaches the mechanism's bound,
does not exceed it in a sound training, and exceeds it in one that is broken."""

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
"""The largest distance between the scores of trainings with and without the record, in standard
deviations, of a Gaussian mechanism with these steps (Dong, Roth and Su 2022, Corollary 3.3)."""


def measured(setting):
    """(the distance between the scores in standard deviations, the standard deviation)."""
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
    settings = (s for s in trainings.settings() if s.sample_rate == 1 and s.path is None)
    return [s for s in settings if s.broken is broken]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(3))
def test_a_sound_training_reveals_what_its_noise_allows_and_no_more(index):
    setting = settings(broken=False)[index]
    distance, deviation = measured(setting)
    assert distance == pytest.approx(DISTANCE, abs=4.5 * math.sqrt(2 / TRAININGS))
    assert deviation == pytest.approx(math.sqrt(STEPS), rel=4.5 / math.sqrt(4 * TRAININGS))


@pytest.mark.slow
@pytest.mark.parametrize("index", range(5))
def test_a_broken_training_reveals_more(index):
    setting = settings(broken=True)[index]
    distance, _ = measured(setting)
    # about twice as much with half the noise, 2.6 times by the batch, 3.4 times by position
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
        assert np.isfinite(attack.attack_with_masks(setting, NOISE, member=True)[0])


@pytest.mark.slow
def test_a_mechanism_is_refuted_by_error_rates_that_it_cannot_have():
    mechanism = Mechanism(1.0, STEPS)
    noise, mu = 2.0, math.sqrt(STEPS) / 2.0
    exact = GAUSSIAN.epsilon(mu, DELTA)
    for false in (0.05, 0.4):
        missed = norm.cdf(norm.ppf(1 - false) - mu)  # the most powerful test's
        assert mechanism.allows(noise, false, missed + 0.01)
        assert not mechanism.allows(noise, false, missed - 0.03)
    assert 0.9 * exact <= mechanism.least_epsilon(false, missed) <= 1.01 * exact
    assert mechanism.least_epsilon(0.5, 0.5) == 0.0
