"""Rows and summary of a search and its null models, listed secrets, prompts, and the finding."""

from dataclasses import replace
from pathlib import Path

import pytest

from vestige.audits.update.evidence import NullSearch
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import beginning
from vestige.audits.update.report import diff_report, searched
from vestige.audits.update.result import update_result
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Settings
from vestige.claims import UNDECIDED
from vestige.claims.model_checks import pair_checks
from vestige.results import Run

SMOOTHED = TokenScore("smoothed")


PAIRS_AND_OPENINGS = Settings(sampling=None, openings=100, pair_vocabulary=None, repaired=0)


def pairs_and_openings(**settings):
    return replace(PAIRS_AND_OPENINGS, **settings)


def null_scores(before, nulls, settings):
    searched = [search(Pair.of(before, null, SMOOTHED), settings) for null in nulls]
    return NullScores.of(found.null_scores for found in searched)


def diff(before, after, settings, *, nulls=None, top=1000):
    """The result of a search, with the scores of null models."""
    pair, searched = Pair.of(before, after, SMOOTHED), nulls.searches if nulls else ()
    return update_result(
        search_update(pair, settings),
        settings=settings,
        pair=pair,
        prompts=[beginning(pair)],
        checks=pair_checks(before, after, seed=0),
        given=len(searched),
        nulls=[NullSearch(scores) for scores in searched],
        top=top,
    )


def scores_of(result, *kinds):
    return [row["score"] for row in result.rows if row["kind"] in kinds]


def test_without_a_null_model_nothing_is_called_found(random_table):
    result = diff(random_table(0), random_table(1), pairs_and_openings(token_penalty=0.1))
    assert result.rows
    assert result.summary["threshold"] is None
    said = {(row["found"], row["e_value"], row["reached_by"]) for row in result.rows}
    assert said == {(None, None, None)}
    assert result.summary["found"] is None


@pytest.mark.slow
def test_null_models_are_searched_as_the_update_is(random_table):
    before, after, *nulls = (random_table(seed, 8) for seed in range(5))
    settings = pairs_and_openings(pairs=30, token_penalty=0.1)
    scores = null_scores(before, nulls, settings)
    alone = [diff(before, null, replace(settings, min_tokens=2)) for null in nulls]
    assert scores == NullScores.of(scores_of(one, "phrase") for one in alone)
    for row in diff(before, after, settings, nulls=scores).rows:
        at_least = sum(score >= row["score"] for one in scores.searches for score in one)
        assert row["e_value"] == (1 + at_least) / 4
        assert row["found"] is None  # three searches cannot say


@pytest.mark.slow
def test_nineteen_null_models_carry_a_verdict(random_table):
    before, after, *nulls = (random_table(seed, 24, 0.05) for seed in range(21))
    settings = pairs_and_openings(pairs=30, token_penalty=0.1)
    scores = null_scores(before, nulls, settings)
    result = diff(before, after, settings, nulls=scores)
    assert result.summary["threshold"] == scores.best
    significant = result.claim.test.significant
    phrases = [row for row in result.rows if row["kind"] == "phrase"]
    above = [row["score"] > scores.best and significant for row in phrases]
    assert [row["found"] for row in phrases] == above
    assert result.summary["found"] == sum(above)


@pytest.mark.slow
@pytest.mark.parametrize("min_tokens", [2, 6])
def test_the_best_that_can_be_found_is_among_what_nulls_count(random_table, min_tokens):
    """Update and nulls by one rule: else the level would hold for another search."""
    for seed in range(5):
        before, after = random_table(seed, 8), random_table(seed + 50, 8)
        settings = pairs_and_openings(token_penalty=0.5, surprise=0.1, min_tokens=min_tokens)
        reported = scores_of(diff(before, after, settings), "phrase")
        assert set(reported) <= set(null_scores(before, [after], settings).searches[0])


def test_the_same_model_as_its_own_null_finds_nothing(random_table):
    before, after = random_table(3, 24, 0.05), random_table(4, 24, 0.05)
    settings = pairs_and_openings(pairs=30, token_penalty=0.1)
    same = null_scores(before, [after], settings).searches * 19
    found = diff(before, after, settings, nulls=NullScores.of(same))
    assert found.claim.test.p == 1
    states = {check.name: check.state for check in found.claim.checks}
    assert states["independent"] == "failed"  # copies count as one
    assert found.verdict == UNDECIDED


@pytest.mark.slow
def test_without_a_phrase_a_laxer_search_lists_fragments(random_table):
    before, after = random_table(0, 8), random_table(1, 8)
    settings = pairs_and_openings(token_penalty=5.0)  # more than any gain
    scores = null_scores(before, [random_table(2, 8)], settings)
    result = diff(before, after, settings, nulls=scores, top=5)
    lax = pairs_and_openings(token_penalty=0.1, surprise=0.0, min_tokens=2)
    phrases = [row for row in diff(before, after, lax).rows if row["kind"] == "phrase"][:5]
    assert [row["tokens"] for row in result.rows] == [row["tokens"] for row in phrases]
    assert result.summary["phrases"] == 0
    assert {row["kind"] for row in result.rows} == {"fragment"}
    assert {row["e_value"] for row in result.rows} == {None}


def test_rows_are_ranked_from_one_and_counted_by_the_summary(random_table):
    settings = pairs_and_openings(token_penalty=0.1)
    result = diff(random_table(0), random_table(1), settings, top=4)
    assert [row["rank"] for row in result.rows] == list(range(1, len(result.rows) + 1))
    assert 0 < len(result.rows) <= 4
    summary = result.summary
    assert summary["phrases"] + summary["runs"] + summary["fragments"] == len(result.rows)


def test_what_is_too_short_to_report_counts_among_null_scores(random_table):
    before, null = random_table(1, 8), random_table(2, 8)
    settings = pairs_and_openings(token_penalty=0.1, surprise=0.0, min_tokens=20, max_tokens=20)
    long = [row for row in diff(before, null, settings).rows if row["kind"] != "fragment"]
    assert all(len(row["tokens"]) == 20 for row in long)
    assert len(null_scores(before, [null], settings).searches[0]) > len(long)


def test_what_a_laxer_least_length_adds_changes_no_longer_phrase(random_table):
    before, after = random_table(5, 8), random_table(6, 8)
    short, long = (
        diff(before, after, pairs_and_openings(token_penalty=0.3, min_tokens=n)) for n in (2, 4)
    )
    assert all(len(row["tokens"]) >= 4 for row in long.rows if row["kind"] == "phrase")
    assert scores_of(long, "phrase")[0] in scores_of(short, "phrase")


NONE = {"phrases": 0, "null_searches": 19, "found": 0}


SOME = {"phrases": 41, "null_searches": 19, "found": 0, "top_score": 2.1, "top_reached_by": 0}


VERBATIM = "AFTER generates 1 of 3 listed secrets verbatim, and BEFORE does not."


PROMOTED = "The update promoted 2 of 3 listed secrets more than 19 null models did"


@pytest.mark.parametrize(
    ("summary", "answer", "evidence"),
    [
        (NONE, "The search found no promoted phrase.", "use --phrase"),
        ({**SOME, "null_searches": 0}, "41 phrases ranked, no null models: there is no", ""),
        ({**SOME, "found": 7}, "The update reveals 7 of 41 phrases (19 null models).", "most 5%."),
        (
            {**SOME, "null_top_score": 1.0},
            "No score of 19 null models reaches the best score of 41 phrases (2.10 against 1.00).",
            "",
        ),
        (
            {**SOME, "top_reached_by": 3},
            "3 of 19 null models reach the best score of 41 phrases, 2.10.",
            "",
        ),
        ({**SOME, "known": 3, "known_generated": 1}, VERBATIM, "No score of 19 null models"),
        ({**SOME, "known": 3, "known_beyond": 2}, PROMOTED, "None of 3 listed secrets is shown"),
        ({**SOME, "known": 3, "known_beyond": 2, "known_generated": 1}, VERBATIM, PROMOTED),
        (
            {**SOME, "known": 3, "known_beyond": 0},
            "No score of 19 null models",
            "more than 19 null models",
        ),
    ],
)
def test_the_finding_is_one_sentence(summary, answer, evidence):
    run = Run(directory=Path(), run={"result": "UpdateDiff"}, summary=summary, rows=[])
    made = diff_report(run, show_secrets=False)
    assert made.answer.startswith(answer)
    assert ". " not in made.answer
    assert evidence in " ".join(made.evidence)
    assert len(made.evidence) <= 2  # the numbers of the claim come first


def test_a_search_that_ran_out_of_time_says_what_is_done():
    summary = {"forward_tokens": 5_000, "complete": False, "units_done": 1, "units": 5}
    assert searched(summary) == (
        "Searched: 5,000 tokens. Time limit: 1 of 5 steps done. Rerun to resume."
    )
    nulls = {"units_done": 5, "null_searches": 2, "nulls_asked": 19}
    assert searched(summary | nulls) == (
        "Searched: 5,000 tokens. Time limit: 2 of 19 null searches done. Rerun to resume."
    )
