"""Rows, summary and sentences of a search and its null searches."""

from dataclasses import replace
from pathlib import Path

import pytest

from vestige.audits.update.evidence import NullSearch
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import beginning
from vestige.audits.update.report import diff_report, search_summary
from vestige.audits.update.result import update_result
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Settings
from vestige.claims import UNDECIDED
from vestige.claims.model_checks import pair_checks
from vestige.results import Run, run_of

QUICK = Settings(
    sampling=None, openings=100, pairs=30, pair_vocabulary=None, repaired=0, token_penalty=0.1
)


def pair_of(before, after):
    return Pair.of(before, after, TokenScore("smoothed"))


def null_scores(before, nulls, settings):
    searches = (search(pair_of(before, null), settings) for null in nulls)
    return NullScores.of(searched.null_scores for searched in searches)


def result_of(before, after, settings, *, nulls=None, top=1000):
    """The result of a search, with the scores of null models."""
    pair, scores = pair_of(before, after), nulls.searches if nulls else ()
    return update_result(
        search_update(pair, settings),
        settings=settings,
        pair=pair,
        prompts=[beginning(pair)],
        checks=pair_checks(before, after, seed=0),
        nulls_requested=len(scores),
        nulls=[NullSearch(null) for null in scores],
        top=top,
    )


def rows_of(result, kind="phrase"):
    return [row for row in result.rows if row["kind"] == kind]


def scores_of(result):
    return [row["score"] for row in rows_of(result)]


def test_rows_are_ranked_and_without_null_models_there_is_no_leak(random_table):
    settings = replace(QUICK, pairs=2000)
    result = result_of(random_table(0), random_table(1), settings, top=4)
    summary = result.summary
    assert [row["rank"] for row in result.rows] == list(range(1, len(result.rows) + 1))
    assert 0 < len(result.rows) <= 4
    assert summary["phrases"] + summary["runs"] + summary["fragments"] == len(result.rows)
    verdicts = {(row["found"], row["e_value"], row["reached_by"]) for row in result.rows}
    assert verdicts == {(None, None, None)}
    assert (summary["threshold"], summary["found"]) == (None, None)


@pytest.mark.slow
def test_null_models_are_searched_like_the_update(random_table):
    before, after, *nulls = (random_table(seed, 8) for seed in range(5))
    scores = null_scores(before, nulls, QUICK)
    alone = [result_of(before, null, replace(QUICK, min_tokens=2)) for null in nulls]
    assert scores == NullScores.of(map(scores_of, alone))
    for row in result_of(before, after, QUICK, nulls=scores).rows:
        at_least = sum(score >= row["score"] for search in scores.searches for score in search)
        assert row["e_value"] == (1 + at_least) / 4
        assert row["found"] is None  # three null searches are too few


@pytest.mark.slow
@pytest.mark.parametrize("min_tokens", [2, 6])
def test_the_reported_phrases_of_an_update_are_among_its_null_scores(random_table, min_tokens):
    """Update and null models are searched by the same rule, so the level holds."""
    settings = replace(QUICK, pairs=2000, token_penalty=0.5, surprise=0.1, min_tokens=min_tokens)
    for seed in range(5):
        before, after = random_table(seed, 8), random_table(seed + 50, 8)
        reported = scores_of(result_of(before, after, settings))
        assert set(reported) <= set(null_scores(before, [after], settings).searches[0])


def test_null_scores_include_phrases_that_are_too_short_to_report(random_table):
    before, null = random_table(1, 8), random_table(2, 8)
    settings = replace(QUICK, surprise=0.0, min_tokens=20, max_tokens=20)
    result = result_of(before, null, settings)
    long = [row for row in result.rows if row["kind"] != "fragment"]
    assert all(len(row["tokens"]) == 20 for row in long)
    assert len(null_scores(before, [null], settings).searches[0]) > len(long)


@pytest.mark.slow
def test_with_nineteen_null_models_leaks_are_the_scores_above_all_of_theirs(random_table):
    before, after, *nulls = (random_table(seed, 24, 0.05) for seed in range(21))
    scores = null_scores(before, nulls, QUICK)
    result = result_of(before, after, QUICK, nulls=scores)
    assert result.summary["threshold"] == scores.best
    significant = result.claim.test.significant
    above = [score > scores.best and significant for score in scores_of(result)]
    assert [row["found"] for row in rows_of(result)] == above
    assert result.summary["found"] == sum(above)


def test_copies_of_the_update_as_null_models_leave_the_verdict_undecided(random_table):
    before, after = random_table(3, 24, 0.05), random_table(4, 24, 0.05)
    same = null_scores(before, [after], QUICK).searches * 19
    result = result_of(before, after, QUICK, nulls=NullScores.of(same))
    assert result.claim.test.p == 1
    assert {check.name: check.state for check in result.claim.checks}["independent"] == "failed"
    assert result.verdict == UNDECIDED


@pytest.mark.slow
def test_without_a_phrase_a_lenient_search_lists_fragments(random_table):
    before, after, null = (random_table(seed, 8) for seed in range(3))
    strict = replace(QUICK, pairs=2000, token_penalty=5.0)  # more than any gain
    scores = null_scores(before, [null], strict)
    result = result_of(before, after, strict, nulls=scores, top=5)
    lenient = replace(QUICK, pairs=2000, surprise=0.0, min_tokens=2)
    expected = rows_of(result_of(before, after, lenient))[:5]
    assert [row["tokens"] for row in result.rows] == [row["tokens"] for row in expected]
    assert result.summary["phrases"] == 0
    assert {(row["kind"], row["e_value"]) for row in result.rows} == {("fragment", None)}


def test_the_chart_has_every_score_and_the_best_score_of_null_models(random_table):
    before, after, null = (random_table(seed, 8) for seed in range(3))
    for nulls in (None, null_scores(before, [null], QUICK)):
        result = result_of(before, after, QUICK, nulls=nulls)
        [figure] = diff_report(run_of(result), show_secrets=False).figures
        assert figure.points == len(scores_of(result)) > 0
        assert len(figure.draw(700).to_dict()["layer"]) == (1 if nulls is None else 2)
        assert ("dashed" in figure.caption) == (nulls is not None)


# Wording.

NONE = {"phrases": 0, "null_searches": 19, "found": 0}
SOME = {"phrases": 41, "null_searches": 19, "found": 0, "top_score": 2.1, "top_reached_by": 0}
LISTED = {**SOME, "known": 3}
VERBATIM = "AFTER generates 1 of 3 listed secrets verbatim, and BEFORE does not."
PROMOTED = "The update promoted 2 of 3 listed secrets more than 19 null models did"
NO_SCORE = "No score of 19 null models"


@pytest.mark.parametrize(
    ("summary", "answer", "evidence"),
    [
        (NONE, "The search found no promoted phrase.", "use --phrase"),
        ({**SOME, "null_searches": 0}, "41 phrases ranked, no null models: there is no", ""),
        ({**SOME, "found": 7}, "The update reveals 7 of 41 phrases (19 null models).", "most 5%."),
        ({**SOME, "null_top_score": 1.0}, f"{NO_SCORE} reaches the best score of 41 phrases (2.10 "
         "against 1.00).", ""),
        ({**SOME, "top_reached_by": 3}, "3 of 19 null models reach the best score of 41 phrases, "
         "2.10.", ""),
        ({**LISTED, "known_generated": 1}, VERBATIM, NO_SCORE),
        ({**LISTED, "known_beyond": 2}, PROMOTED, "None of 3 listed secrets is shown"),
        ({**LISTED, "known_beyond": 2, "known_generated": 1}, VERBATIM, PROMOTED),
        ({**LISTED, "known_beyond": 0}, NO_SCORE, "more than 19 null models"),
    ],
)  # fmt: skip
def test_the_answer_is_one_sentence(summary, answer, evidence):
    run = Run(directory=Path(), run={"result": "UpdateDiff"}, summary=summary, rows=[])
    report = diff_report(run, show_secrets=False)
    assert report.answer.startswith(answer)
    assert ". " not in report.answer
    assert evidence in " ".join(report.evidence)
    assert len(report.evidence) <= 2  # the numbers of the claim come first


@pytest.mark.parametrize(
    ("progress", "done"),
    [
        ({"units_done": 1, "units": 5}, "1 of 5 steps"),
        ({"units_done": 5, "units": 5, "null_searches": 2, "nulls_asked": 19}, "2 of 19 null "
         "searches"),
    ],
)  # fmt: skip
def test_a_search_that_ran_out_of_time_reports_its_progress(progress, done):
    line = search_summary({"forward_tokens": 5_000, "complete": False, **progress})
    assert line == f"Searched: 5,000 tokens. Time limit: {done} done. Rerun to resume."
