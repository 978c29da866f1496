"""The report of extracted secrets answers first, hides the words, and holds no NaN."""

import math
import re
from html.parser import HTMLParser
from itertools import count

import pytest

from vestige.audits.extraction.ranks import COLUMNS, counted_rank, estimated_rank
from vestige.audits.extraction.unknown_words import Extraction, hamming_per_token
from vestige.audits.extraction.utterances_audit import audit_result
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.report import report_of

HOSTILE = ("<script>alert(1)</script>", "</svg><img/src=x>", "\u202e\x1b[31m")
SIZES = (10, 10, 10)
RIGHT = ("4", "0", "7")
WRONG = "The best guess is not right: 33% of its words are wrong (random guesses: 90%)."
ONE_TRIAL = "This is one trial: for a verdict, plant secrets with controls."


def secret(rank=None, *, truth=RIGHT, guess=("4", "0", "9"), pattern="pin _ _ _"):
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


def counted(rank, **options):
    return secret(counted_rank(below=rank - 1, tied=0, space=1000), **options)


def extraction(*secrets, **changes):
    settings = {"search": "exact", "sizes": SIZES}
    numbers = {"evaluated": 1000, "gradients": 0, "seconds": 1.0, "seed": 3, "exhaustive": True}
    return Extraction(secrets=secrets, **(settings | numbers | changes))


def audit(planted, controls, drawn=range(5, 1000, 5)):
    """An audit of rows, or of ranks."""
    planted, controls, never = (
        [counted(one) if isinstance(one, int) else one for one in side]
        for side in (planted, controls, drawn)
    )
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


# One utterance.


def test_a_known_secret_is_answered_by_its_rank(shown):
    report = shown(extraction(counted(3)))
    assert report.headline == (
        "The true secret has rank 3 of 1,000.",
        f"An attacker needs 3 guesses instead of 500 on average. {WRONG}",
        "A random secret that the model never saw ranks as high with probability 0.003. "
        + ONE_TRIAL,
    )
    assert not report.figures[0].worth_it, "one point says no more than the sentence"
    assert "<svg" in report.figures[0].svg


def test_an_estimated_rank_has_its_interval_and_a_bound_is_never_shown_as_measured(shown):
    sampled = shown(extraction(secret(estimated_rank(below=5, tied=0, others=100, space=1000))))
    assert re.search(r"rank ≈ 59 of 1,000 \(95% CI \d+ to \d+\)\.", sampled.evidence[0])
    assert "An attacker needs about 59 guesses instead of 500 on average." in sampled.evidence[1]
    rank = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    bounded = shown(extraction(secret(rank), sizes=(12,) * 10, exhaustive=False))
    assert bounded.evidence[0] == "The true secret has rank ≤ 22,836,358 of 6.2 × 10^10."
    assert bounded.evidence[1].startswith(
        "An attacker needs at most 22,836,358 guesses instead of 3.1 × 10^10 on average."
    )
    assert "an upper bound (≤; 95% confidence)" in bounded.limits[-2]
    [row] = bounded.tables[0].rows
    assert "≤ 22,836,358 of 6.2 × 10^10" in row
    assert "6,191,117" not in repr(bounded)
    assert "≥ 11.40" in row
    worse = shown(extraction(secret(estimated_rank(below=0, tied=0, others=2, space=1000))))
    assert worse.evidence[0] == "The true secret has rank ≤ 843 of 1,000."
    assert worse.evidence[1].startswith("The best guess is not right")


@pytest.mark.parametrize(
    ("better", "guess", "sentence"),
    [(0, RIGHT, "The best guess is right."), (3, ("4", "0", "9"), WRONG)],
)
def test_what_the_search_found_bounds_a_rank_too(shown, better, guess, sentence):
    rank = estimated_rank(below=0, tied=0, others=10_000, space=10**10, better=better)
    assert rank["rank_low"] == 1 + better
    most = f"{math.ceil(rank['rank_high']):,}"
    report = shown(extraction(secret(rank, guess=guess), sizes=(10,) * 10, exhaustive=False))
    assert report.headline == (
        f"The true secret has rank ≤ {most} of 10^10.",
        f"An attacker needs at most {most} guesses instead of 5.0 × 10^9 on average. {sentence}",
        # 1 of 10,001
        "A random secret that the model never saw ranks as high with probability 0.0001. "
        + ONE_TRIAL,
    )


def test_without_the_truth_no_leak_is_claimed_and_no_rank_shown(shown):
    report = shown(extraction(secret(truth=None)))
    assert "does not show that they are in its training text" in report.evidence[0]
    assert "Certainty 40%" in report.evidence[1]
    assert "no rank" in report.evidence[2]
    assert report.tables[0].columns == ("pattern", "guess", "loss", "certainty")
    assert report.tables[1].rows[0][1:] == ("0.25", "40%")
    assert report.tables[1].rows[1][1:] == ("1.25", "15%")  # 0.4 / e


# Planted secrets and controls.


def test_planted_secrets_and_controls_are_beside_each_other(shown):
    report = shown(audit([counted(1, guess=RIGHT)], [400, 600]))
    assert report.verdict.line == (
        "LEAK  The planted secret has rank 1 of 1,000, better than all 201 that were never planted."
    )
    assert "p = 0.005 compared with unplanted secrets" in report.evidence[0]
    assert report.evidence[1] == (
        "An attacker needs 1 guess instead of 500 on average. The best guess is right."
    )
    planted, controls, drawn = report.tables[0].rows
    assert report.tables[0].columns[:3] == ("", "secrets", "extracted")
    assert planted[:3] == ("planted", "1", "1")
    assert controls[:3] == ("never planted", "2", "0")
    assert drawn[:3] == ("never, sampled now", "199", "–")
    assert (planted[4], controls[4], drawn[4]) == ("1", "500", "500")
    assert planted[5] == "9.97"
    listed = [row[:2] for row in report.tables[1].rows]
    assert listed == [("pin _ _ _", times) for times in ("10 ×", "never", "never")]


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
def test_the_verdict_follows_from_the_ranks_that_are_shown(shown, planted, controls, verdict):
    found = audit(planted, controls)
    assert found.verdict == verdict
    report = shown(found)
    assert report.verdict.word == verdict.upper()
    assert f"has rank {min(planted)} of 1,000" in report.verdict.sentence


def test_controls_that_rank_high_are_a_notice_and_hide_nothing(shown):
    report = shown(audit([1], [2, 3, 7]))
    assert "rank 1 of 1,000, better than all 202 that were" in report.verdict.sentence
    [notice] = report.notices
    assert "controls rank higher than random ones" in notice
    assert "harder to show, never easier" in notice


def test_too_few_controls_or_no_ranks_are_explained(shown):
    few = shown(audit([1], range(100, 1000, 100), drawn=()))
    assert "rank 1 of 1,000, better than all 9 that were" in few.verdict.sentence
    assert "There are too few controls: pass more --controls" in few.evidence[-1]
    assert "The least p-value is 0.1, above the level 0.01." in few.verdict.against[0]
    none = shown(audit([1], [], drawn=()))
    assert "There are no controls to compare with" in none.evidence[-1]
    unranked = shown(audit([secret()], [secret()]))
    assert unranked.verdict.sentence == (
        "The planted secret was not ranked; 1 of 200 that were never planted rank as high."
    )
    assert unranked.figures == []


def test_several_secrets_of_one_pattern_share_the_guesses(shown):
    report = shown(audit([counted(1, guess=RIGHT), 2], [501]))
    assert report.verdict.sentence.startswith(
        "The best of 2 planted secrets has rank 1 of 1,000, better than"
    )
    assert report.tables[0].rows[0][4] == "1.5"
    assert "1 of 2 secrets are extracted whole" in report.evidence[1]
    assert any("at most one of them can be the best guess" in limit for limit in report.limits)


# Secrecy and hostile text.


def test_words_are_one_block_each_unless_secrets_are_wanted(shown):
    found = extraction(counted(1, truth=("green",), guess=("green",)), sizes=(12,))
    assert "green" not in repr(shown(found))
    assert shown(found).tables[0].rows[0][1] == "▪▪▪"
    assert shown(found, show_secrets=True).tables[0].rows[0][1] == "green"


class Tags(HTMLParser):
    """The tags of a page, none of which has a handler of events."""

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
    assert not Tags(page).found & {"script", "img"}
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_no_nan_is_on_a_page(saved):
    found = {
        "single": extraction(counted(3)), "blind": extraction(secret(truth=None)),
        "no-controls": audit([3], [], drawn=()), "no-ranks": audit([secret()], [secret()]),
    }  # fmt: skip
    page = render([saved(one, name) for name, one in found.items()], show_secrets=True)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", page)


@pytest.mark.parametrize("name", ["Extraction", "SecretAudit"])
def test_a_run_without_its_numbers_is_refused(saved, name):
    hollow = {"summary": lambda self: {}, "rows": lambda self: [{"pattern": "pin _"}]}
    with pytest.raises(RunError, match=f"not a complete {name} run"):
        report_of(saved(type(name, (), hollow)(), name), show_secrets=False)
