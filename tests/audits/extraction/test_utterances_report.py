"""The page of extracted secrets answers first, hides the words, and holds no NaN."""

import math
import re
from functools import partial
from html.parser import HTMLParser
from itertools import count

import pytest

from vestige.audits.extraction.ranks import COLUMNS, counted_rank, estimated_rank
from vestige.audits.extraction.secret_audit import audit_result
from vestige.audits.extraction.unknown_words import Extraction, hamming_per_token
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.report import report_of

HOSTILE = ("<script>alert(1)</script>", "</svg><img/src=x>", "\u202e\x1b[31m")


SIZES = (10, 10, 10)


def secret(rank=None, *, truth=("4", "0", "7"), guess=("4", "0", "9"), pattern="pin _ _ _"):
    """The row of one trial with two guesses."""
    guesses = [" ".join(guess), " ".join(reversed(guess))]
    known = {"truth": None, "truth_loss": None, "right": None, "hamming": None}
    if truth is not None:
        known = {
            "truth": " ".join(truth), "truth_loss": 0.5 if rank is None else float(rank["rank"]),
            "right": guess == truth, "hamming": hamming_per_token(guess, truth),
        }  # fmt: skip
    return {
        "pattern": pattern, "intent": "Pin", "guess": guesses[0], "loss": 0.25, "certainty": 0.4,
        "guesses": guesses, "losses": [0.25, 1.25], "tried": None, **known,
        **(rank or dict.fromkeys(COLUMNS)),
    }  # fmt: skip


def counted(rank, **given):
    return secret(counted_rank(below=rank - 1, tied=0, space=1000), **given)


def extraction(*secrets, **changes):
    settings = {"search": "exact", "sizes": SIZES}
    numbers = {"evaluated": 1000, "gradients": 0, "seconds": 1.0, "seed": 3, "whole": True}
    return Extraction(secrets=secrets, **(settings | numbers | changes))


DRAWN = range(5, 1000, 5)


def audit(planted, controls, drawn=DRAWN):
    never = [counted(rank) for rank in drawn]
    rows = [{"copies": 10, "drawn": False, **row} for row in planted]
    rows += [{"copies": 0, "drawn": False, **row} for row in controls]
    rows += [{"copies": 0, "drawn": True, **row} for row in never]
    alive = Check("alive", "passed", "The model gives 90% of the labels right.")
    return audit_result([extraction(*rows)], alive=alive)


@pytest.fixture
def shown(saved):
    names = count()

    def show(result, *, show_secrets=False):
        return report_of(saved(result, str(next(names))), show_secrets=show_secrets)

    return show


def test_a_known_secret_is_answered_by_its_rank(shown):
    told = shown(extraction(counted(3)))
    assert told.headline == (
        "The true secret has rank 3 of 1,000.",
        "An attacker needs 3 guesses instead of 500 on average. The best guess is not right: 33% "
        "of its words are wrong (random guesses: 90%).",
        "A random secret that the model never saw ranks as high with probability 0.003. This is "
        "one trial: for a verdict, plant secrets with controls.",
    )
    assert not told.figures[0].worth_it, "one point says no more than the sentence"
    assert "<svg" in told.figures[0].svg


def test_an_estimated_rank_has_its_interval(shown):
    rank = estimated_rank(below=5, tied=0, others=100, space=1000)
    told = shown(extraction(secret(rank)))
    assert re.search(r"rank ≈ 59 of 1,000 \(95% CI \d+ to \d+\)\.", told.evidence[0])
    assert "An attacker needs about 59 guesses instead of 500 on average." in told.evidence[1]


def test_a_rank_that_is_only_bounded_is_never_shown_as_measured(shown):
    rank = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    told = shown(extraction(secret(rank), sizes=(12,) * 10, whole=False))
    assert told.evidence[0] == "The true secret has rank ≤ 22,836,358 of 6.2 × 10^10."
    assert told.evidence[1].startswith(
        "An attacker needs at most 22,836,358 guesses instead of 3.1 × 10^10 on average."
    )
    assert "an upper bound (≤; 95% confidence)" in told.limits[-2]
    [row] = told.tables[0].rows
    assert "≤ 22,836,358 of 6.2 × 10^10" in row
    assert "6,191,117" not in repr(told)
    assert "≥ 11.40" in row


def test_what_the_search_found_bounds_a_rank_too(shown):
    known = {"below": 0, "tied": 0, "others": 10_000, "space": 10**10}
    searched = partial(extraction, sizes=(10,) * 10, whole=False)
    first, rank = estimated_rank(**known), estimated_rank(**known, better=3)
    assert (first["rank_low"], rank["rank_low"]) == (1, 4)
    right = shown(searched(secret(first, guess=("4", "0", "7"))))
    behind = shown(searched(secret(rank)))
    wrong = "The best guess is not right: 33% of its words are wrong (random guesses: 90%)."
    for told, one, guess in ((right, first, "The best guess is right."), (behind, rank, wrong)):
        most = f"{math.ceil(one['rank_high']):,}"
        assert told.headline == (
            f"The true secret has rank ≤ {most} of 10^10.",
            f"An attacker needs at most {most} guesses instead of 5.0 × 10^9 on average. {guess}",
            "A random secret that the model never saw ranks as high with probability 0.0001. This "
            "is one trial: for a verdict, plant secrets with controls.",  # 1 of 10,001
        )


def test_a_bound_in_the_worse_half_says_nothing_of_the_guesses(shown):
    rank = estimated_rank(below=0, tied=0, others=2, space=1000)
    told = shown(extraction(secret(rank)))
    assert told.evidence[0] == "The true secret has rank ≤ 843 of 1,000."
    assert told.evidence[1].startswith("The best guess is not right")


def test_without_the_truth_no_leak_is_claimed_and_no_rank_shown(shown):
    told = shown(extraction(secret(truth=None)))
    assert "does not show that they are in its training text" in told.evidence[0]
    assert "Certainty 40%" in told.evidence[1]
    assert "no rank" in told.evidence[2]
    assert told.tables[0].columns == ("pattern", "guess", "loss", "certainty")
    assert told.tables[1].rows[0][1:] == ("0.25", "40%")
    assert told.tables[1].rows[1][1:] == ("1.25", "15%")  # 0.4 / e


def test_planted_secrets_and_controls_stand_beside_each_other(shown):
    told = shown(audit([counted(1, guess=("4", "0", "7"))], [counted(r) for r in (400, 600)]))
    assert told.verdict.line == (
        "LEAK  The planted secret has rank 1 of 1,000, better than all 201 that were never planted."
    )
    assert "p = 0.005 compared with unplanted secrets" in told.evidence[0]
    assert told.evidence[1] == (
        "An attacker needs 1 guess instead of 500 on average. The best guess is right."
    )
    planted, controls, drawn = told.tables[0].rows
    assert told.tables[0].columns[:3] == ("", "secrets", "extracted")
    assert planted[:3] == ("planted", "1", "1")
    assert controls[:3] == ("never planted", "2", "0")
    assert drawn[:3] == ("never, sampled now", "199", "–")
    assert (planted[4], controls[4], drawn[4]) == ("1", "500", "500")
    assert planted[5] == "9.97"
    assert [row[:2] for row in told.tables[1].rows] == [
        ("pin _ _ _", "10 ×"),
        ("pin _ _ _", "never"),
        ("pin _ _ _", "never"),
    ]


@pytest.mark.parametrize(
    ("planted", "controls", "verdict"),
    [
        ([1], [400], LEAK),
        ([400], [300], UNDECIDED),
        ([11], [300], UNDECIDED),
        ([150, 90, 210, 900, 430, 180, 720, 340], [500], NO_LEAK),
        ([1], [2, 3, 1000], LEAK),
        ([1], [1, 2, 3], LEAK),
        ([1, 900, 800], [300], UNDECIDED),
        ([4], [], LEAK),
        ([150, 90, 210, 60, 130, 180, 120, 40], [500], LEAK),
    ],
)
def test_the_verdict_goes_by_the_places_that_are_shown(shown, planted, controls, verdict):
    found = audit([counted(r) for r in planted], [counted(r) for r in controls])
    assert found.verdict == verdict
    told = shown(found)
    assert told.verdict.word == verdict.upper()
    assert f"has rank {min(planted)} of 1,000" in told.verdict.sentence


def test_controls_that_stand_out_are_told_and_hide_nothing(shown):
    told = shown(audit([counted(1)], [counted(2), counted(3), counted(7)]))
    assert "rank 1 of 1,000, better than all 202 that were" in told.verdict.sentence
    [notice] = told.notices
    assert "controls rank higher than random ones" in notice
    assert "harder to show, never easier" in notice


def test_too_few_controls_decide_nothing_and_say_what_is_missing(shown):
    told = shown(audit([counted(1)], [counted(n) for n in range(100, 1000, 100)], drawn=()))
    assert "rank 1 of 1,000, better than all 9 that were" in told.verdict.sentence
    assert "There are too few controls: pass more --controls" in told.evidence[-1]
    assert "The least p-value is 0.1, above the level 0.01." in told.verdict.against[0]
    none = shown(audit([counted(1)], [], drawn=()))
    assert "There are no controls to compare with" in none.evidence[-1]


def test_what_was_not_ranked_is_decided_by_losses(shown):
    found = audit([secret()], [secret()])
    told = shown(found)
    assert told.verdict.sentence == (
        "The planted secret was not ranked; 1 of 200 that were never planted rank as high."
    )
    assert told.figures == []


def test_several_secrets_of_one_pattern_share_the_guesses(shown):
    told = shown(audit([counted(1, guess=("4", "0", "7")), counted(2)], [counted(501)]))
    assert told.verdict.sentence.startswith(
        "The best of 2 planted secrets has rank 1 of 1,000, better than"
    )
    assert told.tables[0].rows[0][4] == "1.5"
    assert "1 of 2 secrets are extracted whole" in told.evidence[1]
    assert any("at most one of them can be the best guess" in limit for limit in told.limits)


def test_words_are_one_block_each_unless_secrets_are_wanted(shown):
    found = extraction(counted(1, truth=("green",), guess=("green",)), sizes=(12,))
    assert "green" not in repr(shown(found))
    assert shown(found).tables[0].rows[0][1] == "▪▪▪"
    assert shown(found, show_secrets=True).tables[0].rows[0][1] == "green"


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("show_secrets", [False, True])
def test_hostile_words_are_escaped(saved, show_secrets):
    pattern = f"{HOSTILE[0]} _ {HOSTILE[1]}"
    one = counted(2, truth=HOSTILE, guess=HOSTILE, pattern=pattern)
    runs = [saved(extraction(one), "one"), saved(audit([one], [one]), "both")]
    page = render(runs, show_secrets=show_secrets)
    tags = Tags(page).found
    assert not tags & {"script", "img"}
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_no_nan_is_on_a_page_or_in_a_summary(saved):
    runs = [
        saved(extraction(counted(3)), "single"),
        saved(extraction(secret(truth=None)), "blind"),
        saved(audit([counted(3)], [], drawn=()), "no-controls"),
        saved(audit([secret()], [secret()]), "no-ranks"),
    ]
    page = render(runs, show_secrets=True)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", page)
    assert "There are no controls to compare with" in page


def test_a_run_without_its_numbers_is_refused(saved):
    class Hollow:
        def summary(self):
            return {}

        def rows(self):
            return [{"pattern": "pin _"}]

    for name in ("Extraction", "SecretAudit"):
        Hollow.__name__ = name
        with pytest.raises(RunError, match=f"not a complete {name} run"):
            report_of(saved(Hollow(), name), show_secrets=False)
