"""Reports of extracted secrets: ranks and verdicts in sentences, redaction, hostile words."""

import math
import re
from html.parser import HTMLParser
from itertools import count

import pytest

from vestige.audits.extraction.ranks import COLUMNS, counted_rank, estimated_rank
from vestige.audits.extraction.unknown_words import Extraction, hamming_per_token
from vestige.audits.extraction.utterances_audit import audit_result
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.reports.page import render
from vestige.reports.report import report_of

HOSTILE = ("<script>alert(1)</script>", "</svg><img/src=x>", "\u202e\x1b[31m")
SIZES = (10, 10, 10)
TRUTH = ("4", "0", "7")
WRONG_GUESS = "The best guess is not right: 33% of its words are wrong (random guesses: 90%)."
ONE_TRIAL = "This is one trial: for a verdict, plant secrets with controls."


def secret(rank=None, *, truth=TRUTH, guess=("4", "0", "9"), pattern="pin _ _ _"):
    """The row of one trial with two guesses."""
    guesses = [" ".join(guess), " ".join(reversed(guess))]
    of_truth = {"truth": None, "truth_loss": None, "right": None, "hamming": None}
    if truth is not None:
        of_truth = {
            "truth": " ".join(truth), "truth_loss": 0.5 if rank is None else float(rank["rank"]),
            "right": guess == truth, "hamming": hamming_per_token(guess, truth),
        }  # fmt: skip
    return {
        "pattern": pattern, "intent": "Pin", "guess": guesses[0], "loss": 0.25, "certainty": 0.4,
        "guesses": guesses, "losses": [0.25, 1.25], "tried": None, **of_truth,
        **(rank or dict.fromkeys(COLUMNS)),
    }  # fmt: skip


def counted(rank, **options):
    """A row with an exact rank."""
    return secret(counted_rank(below=rank - 1, tied=0, space=1000), **options)


def extraction(*secrets, **changes):
    options = {
        "search": "exact", "sizes": SIZES, "evaluated": 1000, "gradients": 0, "seconds": 1.0,
        "seed": 3, "exhaustive": True,
    }  # fmt: skip
    return Extraction(secrets=secrets, **(options | changes))


def audit(planted, controls, drawn=range(5, 1000, 5)):
    """An audit of planted secrets, controls and controls sampled now: rows, or their ranks."""
    rows = []
    for secrets, copies, sampled in ((planted, 10, False), (controls, 0, False), (drawn, 0, True)):
        for one in secrets:
            row = counted(one) if isinstance(one, int) else one
            rows.append({"copies": copies, "drawn": sampled, **row})
    alive = Check("alive", "passed", "The model gives 90% of the labels right.")
    return audit_result([extraction(*rows)], alive=alive)


@pytest.fixture
def report(saved):
    names = count()

    def make(result, *, show_secrets=False):
        return report_of(saved(result, str(next(names))), show_secrets=show_secrets)

    return make


# One utterance.


def test_the_headline_states_the_rank_of_a_truth(report):
    page = report(extraction(counted(3)))
    assert page.headline == (
        "The true secret has rank 3 of 1,000.",
        f"An attacker needs 3 guesses instead of 500 on average. {WRONG_GUESS}",
        "A random secret that the model never saw ranks as high with probability 0.003. "
        + ONE_TRIAL,
    )
    assert not page.figures[0].worth_it, "a chart of one point repeats the sentence"
    assert "<svg" in page.figures[0].svg


def test_an_estimated_rank_has_an_interval_and_a_bound_is_marked_as_a_bound(report):
    sampled = report(extraction(secret(estimated_rank(below=5, tied=0, others=100, space=1000))))
    assert re.search(r"rank ≈ 59 of 1,000 \(95% CI \d+ to \d+\)\.", sampled.evidence[0])
    assert "An attacker needs about 59 guesses instead of 500 on average." in sampled.evidence[1]
    rank = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    bounded = report(extraction(secret(rank), sizes=(12,) * 10, exhaustive=False))
    assert bounded.evidence[0] == "The true secret has rank ≤ 22,836,358 of 6.2 × 10^10."
    assert bounded.evidence[1].startswith(
        "An attacker needs at most 22,836,358 guesses instead of 3.1 × 10^10 on average."
    )
    assert "an upper bound (≤; 95% confidence)" in bounded.limits[-2]
    [row] = bounded.tables[0].rows
    assert "≤ 22,836,358 of 6.2 × 10^10" in row
    assert "6,191,117" not in repr(bounded)
    assert "≥ 11.40" in row
    worse = report(extraction(secret(estimated_rank(below=0, tied=0, others=2, space=1000))))
    assert worse.evidence[0] == "The true secret has rank ≤ 843 of 1,000."
    assert worse.evidence[1].startswith("The best guess is not right")


@pytest.mark.parametrize(
    ("better", "guess", "sentence"),
    [(0, TRUTH, "The best guess is right."), (3, ("4", "0", "9"), WRONG_GUESS)],
)
def test_better_guesses_of_the_search_bound_a_rank_from_below(report, better, guess, sentence):
    rank = estimated_rank(below=0, tied=0, others=10_000, space=10**10, better=better)
    assert rank["rank_low"] == 1 + better
    most = f"{math.ceil(rank['rank_high']):,}"
    page = report(extraction(secret(rank, guess=guess), sizes=(10,) * 10, exhaustive=False))
    assert page.headline == (
        f"The true secret has rank ≤ {most} of 10^10.",
        f"An attacker needs at most {most} guesses instead of 5.0 × 10^9 on average. {sentence}",
        # 1 of 10,001
        "A random secret that the model never saw ranks as high with probability 0.0001. "
        + ONE_TRIAL,
    )


def test_without_the_truth_there_is_no_rank_and_no_leak(report):
    page = report(extraction(secret(truth=None)))
    assert "does not show that they are in its training text" in page.evidence[0]
    assert "Certainty 40%" in page.evidence[1]
    assert "no rank" in page.evidence[2]
    assert page.tables[0].columns == ("pattern", "guess", "loss", "certainty")
    assert page.tables[1].rows[0][1:] == ("0.25", "40%")
    assert page.tables[1].rows[1][1:] == ("1.25", "15%")  # 0.4 / e


# Planted secrets and controls.


def test_planted_secrets_are_compared_with_controls(report):
    page = report(audit([counted(1, guess=TRUTH)], [400, 600]))
    assert page.verdict.line == (
        "LEAK  The planted secret has rank 1 of 1,000, better than all 201 that were never planted."
    )
    assert "p = 0.005 compared with unplanted secrets" in page.evidence[0]
    assert page.evidence[1] == (
        "An attacker needs 1 guess instead of 500 on average. The best guess is right."
    )
    planted, controls, drawn = page.tables[0].rows
    assert page.tables[0].columns[:3] == ("", "secrets", "extracted")
    assert planted[:3] == ("planted", "1", "1")
    assert controls[:3] == ("never planted", "2", "0")
    assert drawn[:3] == ("never, sampled now", "199", "–")
    assert (planted[4], controls[4], drawn[4]) == ("1", "500", "500")
    assert planted[5] == "9.97"
    listed = [row[:2] for row in page.tables[1].rows]
    assert listed == [("pin _ _ _", copies) for copies in ("10 ×", "never", "never")]


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
def test_the_verdict_follows_from_the_ranks(report, planted, controls, verdict):
    result = audit(planted, controls)
    assert result.verdict == verdict
    page = report(result)
    assert page.verdict.word == verdict.upper()
    assert f"has rank {min(planted)} of 1,000" in page.verdict.sentence


def test_controls_with_good_ranks_give_a_notice_and_hide_no_leak(report):
    page = report(audit([1], [2, 3, 7]))
    assert "rank 1 of 1,000, better than all 202 that were" in page.verdict.sentence
    [notice] = page.notices
    assert "controls rank higher than random ones" in notice
    assert "harder to show, never easier" in notice


def test_too_few_controls_and_missing_ranks_are_explained(report):
    few = report(audit([1], range(100, 1000, 100), drawn=()))
    assert "rank 1 of 1,000, better than all 9 that were" in few.verdict.sentence
    assert "There are too few controls: pass more --controls" in few.evidence[-1]
    assert "The least p-value is 0.1, above the level 0.01." in few.verdict.against[0]
    none = report(audit([1], [], drawn=()))
    assert "There are no controls to compare with" in none.evidence[-1]
    unranked = report(audit([secret()], [secret()]))
    assert unranked.verdict.sentence == (
        "The planted secret was not ranked; 1 of 200 that were never planted rank as high."
    )
    assert unranked.figures == []


def test_several_secrets_of_one_pattern_share_the_guesses(report):
    page = report(audit([counted(1, guess=TRUTH), 2], [501]))
    assert page.verdict.sentence.startswith(
        "The best of 2 planted secrets has rank 1 of 1,000, better than"
    )
    assert page.tables[0].rows[0][4] == "1.5"
    assert "1 of 2 secrets are extracted whole" in page.evidence[1]
    assert any("at most one of them can be the best guess" in limit for limit in page.limits)


# Redaction and hostile text.


def test_words_are_redacted_without_show_secrets(report):
    result = extraction(counted(1, truth=("green",), guess=("green",)), sizes=(12,))
    assert "green" not in repr(report(result))
    assert report(result).tables[0].rows[0][1] == "▪▪▪"
    assert report(result, show_secrets=True).tables[0].rows[0][1] == "green"


class Tags(HTMLParser):
    """Collects the tags of a page and refuses event handlers."""

    def __init__(self, page):
        super().__init__()
        self.tags = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("show_secrets", [False, True])
def test_hostile_words_are_escaped(saved, show_secrets):
    pattern = f"{HOSTILE[0]} _ {HOSTILE[1]}"
    row = counted(2, truth=HOSTILE, guess=HOSTILE, pattern=pattern)
    runs = [saved(extraction(row), "one"), saved(audit([row], [row]), "both")]
    page = render(runs, show_secrets=show_secrets)
    assert not Tags(page).tags & {"script", "img"}
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_no_nan_is_on_a_page(saved):
    results = {
        "single": extraction(counted(3)), "blind": extraction(secret(truth=None)),
        "no-controls": audit([3], [], drawn=()), "no-ranks": audit([secret()], [secret()]),
    }  # fmt: skip
    page = render([saved(result, name) for name, result in results.items()], show_secrets=True)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", page)
