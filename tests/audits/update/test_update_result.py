from dataclasses import replace

import pytest
from vestige.attacks.update.null_searches import NullScores
from vestige.attacks.update.seed_and_extend import pairs_and_openings
from vestige.attacks.update.token_scores import token_score
from vestige.attacks.update.update_diff import Beams, null_scores, update_diff

from vestige.errors import IncompatibleModels

DIFFERENTIAL = token_score("differential")


def test_a_full_beam_puts_the_best_phrase_first(random_table, naive_score, every_phrase):
    before, after = random_table(0), random_table(1)
    best = max(every_phrase(5, 3), key=lambda s: naive_score(before, after, s))
    diff = update_diff(before, after, search=Beams(length=3, width=125), score=DIFFERENTIAL)
    assert diff.findings[0].tokens == best
    assert diff.findings[0].score == pytest.approx(naive_score(before, after, best), abs=1e-5)


def test_swapping_the_models_shows_what_a_deletion_reveals(random_table, naive_score, every_phrase):
    before, after = random_table(0), random_table(1)
    worst = min(every_phrase(5, 2), key=lambda s: naive_score(before, after, s))
    diff = update_diff(after, before, search=Beams(length=2, width=25), score=DIFFERENTIAL)
    assert diff.findings[0].tokens == worst


def test_without_a_null_model_nothing_is_called_found(random_table):
    diff = update_diff(random_table(0), random_table(1), search=Beams(length=2))
    assert (diff.nulls, diff.threshold) == (None, None)
    said = {(row["found"], row["e_value"], row["reached_by"]) for row in diff.rows()}
    assert said == {(None, None, None)}
    assert diff.summary()["found"] is None


def test_null_models_are_searched_as_the_update_is(random_table):
    before, after, *nulls = (random_table(seed, 8) for seed in range(5))
    search = pairs_and_openings(seeds=30, toll=0.1)
    alone = [update_diff(before, n, search=replace(search, min_tokens=2)) for n in nulls]
    scores = null_scores(before, iter(nulls), search=search)
    assert scores == NullScores.of([f.score for f in d.findings if not f.run] for d in alone)
    diff = update_diff(before, after, search=search, nulls=nulls)
    assert diff.nulls == scores
    assert diff == update_diff(before, after, search=search, nulls=scores)
    for row in diff.rows():
        at_least = sum(score >= row["score"] for search in scores.searches for score in search)
        assert row["e_value"] == (1 + at_least) / 4
        assert row["found"] is None  # three searches cannot say


def test_nineteen_null_models_carry_a_verdict(random_table):
    before, after, *nulls = (random_table(seed, 24, 0.05) for seed in range(21))
    search = Beams(length=3, width=50)
    scores = null_scores(before, nulls, search=search)
    diff = update_diff(before, after, search=search, nulls=scores)
    assert diff.threshold == scores.best
    above = [finding.score > scores.best for finding in diff.findings]
    significant = diff.claim.test.significant
    assert [row["found"] for row in diff.rows()] == [one and significant for one in above]
    assert diff.summary()["found"] == sum(significant * scores.found(f.score) for f in diff.phrases)


@pytest.mark.parametrize("min_tokens", [2, 4, 6])
def test_the_best_that_can_be_found_is_among_what_nulls_count(random_table, min_tokens):
    """Update and nulls by one rule: else the level would hold for another search."""
    for seed in range(10):
        before, after = random_table(seed, 8), random_table(seed + 50, 8)
        search = pairs_and_openings(toll=0.5, surprise=0.1, min_tokens=min_tokens)
        diff = update_diff(before, after, search=search)
        as_null = null_scores(before, [after], search=search)
        reported = [f.score for f in diff.findings if not f.run]
        assert set(reported) <= set(as_null.searches[0])


def test_the_same_model_as_its_own_null_finds_nothing(random_table):
    before, after = random_table(3, 24, 0.05), random_table(4, 24, 0.05)
    search = pairs_and_openings(seeds=30, toll=0.1)
    same = null_scores(before, [after] * 19, search=search)
    found = update_diff(before, after, search=search, nulls=same)
    assert found.claim.test.p == 1
    assert found.verdict == "undecided"  # copies count as one


def test_where_there_is_no_phrase_a_laxer_search_lists_fragments(random_table):
    before, after = random_table(0, 8), random_table(1, 8)
    search = pairs_and_openings(toll=5.0)  # more than any gain
    diff = update_diff(before, after, search=search, nulls=[random_table(2, 8)], top=5)
    lax = update_diff(
        before, after, search=pairs_and_openings(toll=0.1, surprise=0.0, min_tokens=2)
    )
    assert not diff.findings
    assert diff.fragments == tuple(f for f in lax.findings if not f.run)[:5]
    assert diff.summary()["phrases"] == 0
    assert {row["kind"] for row in diff.rows()} == {"fragment"}
    assert {row["e_value"] for row in diff.rows()} == {None}


def test_two_equal_models_have_no_fragment_either(random_table):
    diff = update_diff(random_table(0, 8), random_table(0, 8))
    assert (diff.findings, diff.fragments) == ((), ())


def test_rows_are_ranked_from_one_and_counted_by_the_summary(random_table):
    diff = update_diff(random_table(0), random_table(1), search=Beams(length=3), top=4)
    rows = list(diff.rows())
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) <= 4
    summary = diff.summary()
    assert summary["phrases"] + summary["runs"] == len(rows)


def test_groups_are_the_beams(random_table):
    diff = update_diff(random_table(0, 6), random_table(1, 6), search=Beams(length=2, groups=3))
    assert {finding.group for finding in diff.findings} == {0, 1, 2}


def test_different_vocabularies_are_refused(random_table):
    with pytest.raises(IncompatibleModels):
        update_diff(random_table(0, 5), random_table(1, 6))


def test_what_is_too_short_to_report_counts_among_null_scores(random_table):
    before, null = random_table(1, 8), random_table(2, 8)
    search = pairs_and_openings(toll=0.1, surprise=0.0, min_tokens=20, max_tokens=20)
    long = update_diff(before, null, search=search)
    assert all(len(finding.tokens) == 20 for finding in long.findings)
    scores = null_scores(before, [null], search=search).searches[0]
    assert len(scores) > len(long.findings)


def test_what_a_laxer_least_length_adds_changes_no_longer_phrase(random_table):
    before, after = random_table(5, 8), random_table(6, 8)
    short = update_diff(before, after, search=pairs_and_openings(toll=0.3, min_tokens=2))
    long = update_diff(before, after, search=pairs_and_openings(toll=0.3, min_tokens=4))
    assert all(len(finding.tokens) >= 4 for finding in long.findings)
    assert long.findings[0].score in {f.score for f in short.findings}


def test_no_null_model_is_no_null_score(random_table):
    with pytest.raises(ValueError, match="searches must hold one null search"):
        null_scores(random_table(0), [])
