import itertools

import numpy as np
import pytest

from vestige.data.canaries.patterns import SecretPattern, draw_secrets, paper_pattern
from vestige.data.canaries.utterances import SecretCanary, secret_canaries

PIN = SecretPattern.parse("pin {digit:4}", intent="Pin")
SMALL = SecretPattern.parse("{coin} {coin}", intent="X", candidates={"coin": ("head", "tail")})


def of_paper(shorthand: str, **options) -> tuple[SecretCanary, ...]:
    text, intent = paper_pattern(shorthand)
    return secret_canaries(text, intent=intent, **{"copies": 10, "seed": 0, **options})


def test_all_secrets_can_be_drawn_and_none_comes_twice():
    drawn = draw_secrets(SMALL, number=4, seed=0)
    assert sorted(drawn) == sorted(itertools.product(["head", "tail"], repeat=2))


def test_every_secret_is_drawn_alike():
    counts = dict.fromkeys(itertools.product(["head", "tail"], repeat=2), 0)
    for seed in range(800):
        counts[draw_secrets(SMALL, number=1, seed=seed)[0]] += 1
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 16.3  # 0.999 quantile at 3 degrees of freedom


def test_digits_are_uniform_at_every_place():
    drawn = np.array(draw_secrets(PIN, number=2000, seed=0)).astype(int)
    for place in drawn.T:
        chi_square = ((np.bincount(place, minlength=10) - 200) ** 2 / 200).sum()
        assert chi_square < 27.9  # 0.999 quantile at 9 degrees of freedom


def test_a_space_too_large_for_a_list_is_drawn_from_at_once():
    text, intent = paper_pattern("color:10")
    colours = SecretPattern.parse(text, intent=intent)
    drawn = draw_secrets(colours, number=500, seed=1)
    assert colours.space == 12**10
    assert len(set(drawn)) == 500
    for secret in drawn:
        colours.check(secret)
    beyond = SecretPattern.parse("{digit:60}", intent="X")  # no machine integer counts these
    assert len(draw_secrets(beyond, number=3, seed=1)) == 3


def test_what_is_excluded_is_not_drawn():
    exclude = [("head", "head"), ["head", "tail"]]
    assert set(draw_secrets(SMALL, number=2, seed=0, exclude=exclude)) == {
        ("tail", "head"),
        ("tail", "tail"),
    }


def test_the_seed_decides_and_more_secrets_leave_the_first_as_they_are():
    assert draw_secrets(PIN, number=9, seed=3)[:4] == draw_secrets(PIN, number=4, seed=3)
    assert draw_secrets(PIN, number=4, seed=4) != draw_secrets(PIN, number=4, seed=3)


def test_two_patterns_of_one_seed_do_not_share_their_secrets():
    assert [c.secret for c in of_paper("pin:4")] != [c.secret for c in of_paper("call:4")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 5}, "number must be at most 4"),
        ({"number": 4, "exclude": [("head", "head")]}, "number must be at most 3"),
        ({"number": 1, "exclude": [("head",)]}, "must have 2 words"),
        ({"number": 1, "exclude": [("head", "edge")]}, "word 2 of the secret must be one of"),
    ],
)
def test_secrets_that_there_are_not_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw_secrets(SMALL, seed=0, **options)


def test_canaries_come_first_and_controls_are_never_planted():
    made = of_paper("pin:4", number=3, controls=5)
    assert [canary.copies for canary in made] == [10] * 3 + [0] * 5
    assert [canary.control for canary in made] == [False] * 3 + [True] * 5
    assert all(canary.planted != canary.control for canary in made)
    assert len({canary.secret for canary in made}) == 8
    assert {canary.pattern for canary in made} == {"my pin code is {digit:4}"}


def test_more_controls_leave_the_canaries_as_they_are():
    assert of_paper("pin:4", controls=9)[:2] == of_paper("pin:4", controls=1)


def test_the_utterance_is_the_pattern_with_the_secret_in_it():
    [canary, _] = of_paper("color:3")
    assert canary.utterance.text == "color " + " ".join(canary.secret)
    assert canary.utterance.tags == ("O", "B-canary", "I-canary", "I-canary")
    assert canary.utterance.intent == "ColorIntent"


def test_a_canary_knows_the_sets_that_its_pattern_names_and_no_others():
    sets = {"name": ["ann", "bob"], "other": ["x", "y"]}
    [canary, _] = secret_canaries(
        "{name} {digit}", intent="X", candidates=sets, copies=1, seed=0, slot="who"
    )
    assert dict(canary.candidates) == {"name": ("ann", "bob"), "digit": tuple("0123456789")}
    assert canary.utterance.tags == ("B-who", "I-who")


def test_more_secrets_than_there_are_are_refused():
    with pytest.raises(ValueError, match="must be at most 10 together"):
        of_paper("pin:1", number=6, controls=5)


def test_a_secret_that_the_pattern_cannot_have_is_refused():
    with pytest.raises(ValueError, match="word 1 of the secret") as caught:
        SecretCanary(pattern="pin {digit}", intent="P", slot="s", secret=("hunter",), copies=1)
    assert "hunter" not in str(caught.value)
