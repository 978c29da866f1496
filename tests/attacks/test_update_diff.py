from dataclasses import replace

import pytest

from vestige.attacks.chance import Chance
from vestige.attacks.seed_and_extend import Growth
from vestige.attacks.token_scores import token_score
from vestige.attacks.update_diff import Beams, null_chance, update_diff
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


def test_without_a_null_pair_nothing_is_called_found(random_table):
    diff = update_diff(random_table(0), random_table(1), search=Beams(length=2))
    assert diff.threshold is None
    assert {row["found"] for row in diff.rows()} == {None}
    assert diff.summary()["found"] is None


def test_a_null_pair_sets_the_threshold(random_table):
    before, after, null = (random_table(seed, 8) for seed in (0, 1, 2))
    search = Growth(seeds=30, toll=0.1)
    alone = update_diff(before, null, search=replace(search, min_tokens=2))
    expected = Chance.of(f.score for f in alone.findings if not f.run)
    diff = update_diff(before, after, search=search, null=null)
    assert diff.chance == null_chance(before, null, search=search) == expected
    assert diff == update_diff(before, after, search=search, null=expected)
    assert all(row["found"] == (row["score"] > expected.threshold) for row in diff.rows())
    assert [row["e_value"] for row in diff.rows()] == [
        expected.expected(finding.score) for finding in diff.findings
    ]


def test_the_same_model_as_its_own_null_finds_nothing(random_table):
    before, after = random_table(3, 8), random_table(4, 8)
    diff = update_diff(before, after, search=Growth(seeds=30, toll=0.1), null=after)
    assert diff.summary()["found"] == 0


def test_rows_are_ranked_from_zero_and_counted_by_the_summary(random_table):
    diff = update_diff(random_table(0), random_table(1), search=Beams(length=3), top=4)
    rows = list(diff.rows())
    assert [row["rank"] for row in rows] == list(range(len(rows)))
    assert len(rows) <= 4
    summary = diff.summary()
    assert summary["phrases"] + summary["runs"] == len(rows)


def test_groups_are_the_beams(random_table):
    diff = update_diff(random_table(0, 6), random_table(1, 6), search=Beams(length=2, groups=3))
    assert {finding.group for finding in diff.findings} == {0, 1, 2}


def test_different_vocabularies_are_refused(random_table):
    with pytest.raises(IncompatibleModels):
        update_diff(random_table(0, 5), random_table(1, 6))


def test_what_is_too_short_to_report_still_sets_the_threshold(random_table):
    before, null = random_table(1, 8), random_table(2, 8)
    search = Growth(toll=0.1, surprise=0.0, min_tokens=20, max_tokens=20)
    long = update_diff(before, null, search=search)
    assert all(len(finding.tokens) == 20 for finding in long.findings)
    short = update_diff(before, null, search=replace(search, min_tokens=2))
    assert update_diff(before, null, search=search, null=null).chance == Chance.of(
        finding.score for finding in short.findings if not finding.run
    )
