import pytest

from vestige.errors import RunError
from vestige.reports.report import report_of


def findings(shown, title):
    [found] = [block for block in shown.blocks if getattr(block, "title", "") == title]
    return found.groups


def test_phrases_stand_with_their_shading(saved, diff):
    shown = report_of(saved(diff([["a", "b", "c", "d"]])), show_secrets=True)
    [[phrase]] = findings(shown, "Phrases")
    assert [(t.text, t.shade) for t in phrase.tokens] == [
        ("a", 25),
        ("b", 50),
        ("c", 75),
        ("d", 100),
    ]


def test_a_phrase_counts_as_found_above_the_null_threshold_only(saved, diff):
    shown = report_of(saved(diff([["a", "b", "c"], ["a"]], threshold=2.5)), show_secrets=True)
    assert [group[0].verdict for group in findings(shown, "Phrases")] == ["found", "19 of 19 nulls"]
    assert shown.evidence[0].startswith("The update reveals 1 of 2 phrases (19 null models).")


def test_too_few_null_searches_are_counted(saved, diff):
    shown = report_of(saved(diff([["a", "b"]], nulls=4)), show_secrets=True)
    assert findings(shown, "Phrases")[0][0].verdict == "0 of 4 nulls"
    wanted = "No score of 4 null models reaches the best score of 1 phrase (3.00"
    assert shown.evidence[0].startswith(wanted)


def test_where_nothing_is_found_the_best_score_is_compared(saved, diff):
    shown = report_of(saved(diff([["a"], ["b"]], threshold=2.5)), show_secrets=True)
    assert "19 of 19 null models reach the best score" in shown.evidence[0]
    assert " found" not in shown.evidence[0]


def test_other_samples_are_listed_apart(saved, diff):
    shown = report_of(saved(diff([["a"]], kinds={0: "fragment"})), show_secrets=True)
    assert [block.title for block in shown.blocks] == ["Fragments, not tested"]
    assert len(shown.blocks[0].groups) == 1
    assert shown.evidence[0] == "The search found no promoted phrase."
    assert "1 fragment listed, not tested" in shown.evidence[1]
    assert "--phrase" in shown.evidence[1]


def test_without_a_null_model_nothing_counts_as_found(saved, diff):
    shown = report_of(saved(diff([["a"]])), show_secrets=True)
    assert findings(shown, "Phrases")[0][0].verdict == ""
    assert "no null models: there is no significance level" in shown.evidence[0]


def test_a_group_stands_together_behind_its_best(saved, diff):
    shown = report_of(
        saved(diff([["a"], ["b"], ["c"]], groups={0: 0, 1: 1, 2: 0})), show_secrets=True
    )
    assert [[p.rank for p in group] for group in findings(shown, "Phrases")] == [[1, 3], [2]]


def test_runs_of_one_token_are_counted_apart(saved, diff):
    shown = report_of(saved(diff([["a"], ["x", "x"]], kinds={1: "run"})), show_secrets=True)
    [runs] = [block for block in shown.blocks if block.template == "findings" and block.folded]
    assert [[p.rank for p in group] for group in runs.groups] == [[2]]
    assert [[p.rank for p in group] for group in findings(shown, "Phrases")] == [[1]]


def test_an_update_without_phrases_has_a_section(saved, diff):
    shown = report_of(saved(diff([])), show_secrets=True)
    assert shown.blocks == ()
    assert shown.evidence[0] == "The search found no promoted phrase."
    assert shown.evidence[1].startswith("To test a phrase that you know,")


SECRET = "Rosalind hides 4917 tulips"


def everything(shown):
    return repr(shown)


def test_no_part_of_a_run_shows_the_secret_unasked(saved, rank):
    run = saved(
        rank(SECRET.split()),
        command=["vestige", "rank", "a", "b", "--phrase", SECRET, "--out", "r"],
        configuration={"phrase": SECRET, "nested": {"prefix": "Rosalind hides"}, "beam": 4},
    )
    shown = everything(report_of(run, show_secrets=False))
    assert not [word for word in SECRET.split() if word in shown]
    assert "--phrase …" in shown


def test_a_phrase_given_with_an_equals_sign_is_withheld_too(saved, rank):
    run = saved(rank(["a"]), command=["vestige", "rank", f"--phrase={SECRET}"])
    assert report_of(run, show_secrets=False).command == "vestige rank --phrase=…"


def test_the_command_can_be_typed_again_when_secrets_are_shown(saved, rank):
    run = saved(rank(["a"]), command=["vestige", "rank", "--phrase", SECRET])
    assert report_of(run, show_secrets=True).command == f"vestige rank --phrase '{SECRET}'"


def test_a_result_of_another_kind_is_a_table_with_its_phrases_withheld(saved):
    class Table1:
        def summary(self):
            return {"perplexity": 120.9}

        def rows(self):
            return [{"phrase": SECRET, "tokens": [1, 2], "score": 3.4}]

    shown = report_of(saved(Table1()), show_secrets=False)
    [table] = shown.tables
    assert (table.columns, table.texts) == (("phrase", "tokens", "score"), 2)
    assert table.rows[0][1:] == ("hidden", "3.4")
    assert "Rosalind" not in everything(shown)


def test_rows_without_their_columns_are_refused(saved):
    class UpdateDiff:
        def summary(self):
            return {}

        def rows(self):
            return [{"rank": 0}]

    with pytest.raises(RunError, match=r"not a complete UpdateDiff run.*Repeat"):
        report_of(saved(UpdateDiff()), show_secrets=False)


def test_a_damaged_run_is_named_and_what_it_holds_is_not(saved, rank, monkeypatch):
    def fails(run, *, show_secrets):
        return {}[run.rows[0]["piece"]]

    monkeypatch.setattr("vestige.audits.update.report.rank_report", fails)
    with pytest.raises(
        RunError, match=r"is not a complete DifferentialRank run \(KeyError\)"
    ) as caught:
        report_of(saved(rank([SECRET])), show_secrets=False)
    assert SECRET not in str(caught.value)
