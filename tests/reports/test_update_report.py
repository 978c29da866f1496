"""The section of the phrases of an update, and properties of all sections."""

from itertools import count

import pytest

from vestige.errors import RunError
from vestige.reports.report import report_of

SECRET = "Rosalind hides 4917 tulips"


@pytest.fixture
def shown(saved):
    """The section of a result, with its texts."""

    numbers = count()

    def section(result):
        return report_of(saved(result, f"run-{next(numbers)}"), show_secrets=True)

    return section


def groups(shown, title="Phrases"):
    [block] = [block for block in shown.blocks if getattr(block, "title", "") == title]
    return block.groups


def ranks(groups):
    return [[phrase.rank for phrase in group] for group in groups]


def test_tokens_are_shaded_by_their_scores(shown, diff):
    [[phrase]] = groups(shown(diff([["a", "b", "c", "d"]])))
    shades = [(token.text, token.shade) for token in phrase.tokens]
    assert shades == [("a", 25), ("b", 50), ("c", 75), ("d", 100)]


@pytest.mark.parametrize(
    ("phrases", "nulls", "marks", "evidence"),
    [
        (
            [["a", "b", "c"], ["a"]],
            {"threshold": 2.5},
            ["found", "19 of 19 nulls"],
            "The update reveals 1 of 2 phrases (19 null models).",
        ),
        (
            [["a", "b"]],
            {"nulls": 4},
            ["0 of 4 nulls"],
            "No score of 4 null models reaches the best score of 1 phrase (3.00",
        ),
        (
            [["a"], ["b"]],
            {"threshold": 2.5},
            ["19 of 19 nulls"] * 2,
            "19 of 19 null models reach the best score",
        ),
        ([["a"]], {}, [""], "no null models: there is no significance level"),
    ],
)
def test_phrases_are_found_only_above_all_null_models(shown, diff, phrases, nulls, marks, evidence):
    report = shown(diff(phrases, **nulls))
    assert [group[0].verdict for group in groups(report)] == marks
    assert evidence in report.evidence[0]


def test_groups_are_sorted_and_runs_of_one_token_are_folded(shown, diff):
    grouped = shown(diff([["a"], ["b"], ["c"]], groups={0: 0, 1: 1, 2: 0}))
    assert ranks(groups(grouped)) == [[1, 3], [2]]
    apart = shown(diff([["a"], ["x", "x"]], kinds={1: "run"}))
    [runs] = [block for block in apart.blocks if block.template == "findings" and block.folded]
    assert ranks(runs.groups) == [[2]]
    assert ranks(groups(apart)) == [[1]]


def test_fragments_are_listed_separately_and_not_tested(shown, diff):
    nothing = shown(diff([]))
    assert nothing.blocks == ()
    assert nothing.evidence[1].startswith("To test a phrase that you know,")
    fragment = shown(diff([["a"]], kinds={0: "fragment"}))
    assert [block.title for block in fragment.blocks] == ["Fragments, not tested"]
    assert len(fragment.blocks[0].groups) == 1
    assert nothing.evidence[0] == fragment.evidence[0] == "The search found no promoted phrase."
    assert "1 fragment listed, not tested" in fragment.evidence[1]
    assert "--phrase" in fragment.evidence[1]


# Of any run


def test_a_report_is_redacted_by_default(saved, rank):
    run = saved(
        rank(SECRET.split()),
        command=["vestige", "rank", "a", "b", "--phrase", SECRET, "--out", "r"],
        configuration={"phrase": SECRET, "nested": {"prefix": "Rosalind hides"}, "beam": 4},
    )
    shown = repr(report_of(run, show_secrets=False))
    assert not [word for word in SECRET.split() if word in shown]
    assert "--phrase …" in shown


@pytest.mark.parametrize(
    ("arguments", "show_secrets", "command"),
    [
        ([f"--phrase={SECRET}"], False, "vestige rank --phrase=…"),
        (["--phrase", SECRET], True, f"vestige rank --phrase '{SECRET}'"),
    ],
)
def test_the_command_is_redacted_or_complete(saved, rank, arguments, show_secrets, command):
    run = saved(rank(["a"]), command=["vestige", "rank", *arguments])
    assert report_of(run, show_secrets=show_secrets).command == command


def of_kind(name, summary, row):
    """A result of a kind with one row."""
    methods = {"summary": lambda self: summary, "rows": lambda self: [row]}
    return type(name, (), methods)()


def test_other_kinds_are_redacted_tables(saved):
    row = {"phrase": SECRET, "tokens": [1, 2], "score": 3.4}
    shown = report_of(saved(of_kind("Table1", {"perplexity": 120.9}, row)), show_secrets=False)
    [table] = shown.tables
    assert (table.columns, table.texts) == (("phrase", "tokens", "score"), 2)
    assert table.rows[0][1:] == ("hidden", "3.4")
    assert "Rosalind" not in repr(shown)


def test_rows_without_their_columns_are_refused(saved):
    run = saved(of_kind("UpdateDiff", {}, {"rank": 0}))
    with pytest.raises(RunError, match=r"not a complete UpdateDiff run.*Repeat"):
        report_of(run, show_secrets=False)


def test_errors_of_damaged_runs_contain_no_text(saved, rank, monkeypatch):
    def fails(run, *, show_secrets):
        return {}[run.rows[0]["piece"]]

    monkeypatch.setattr("vestige.audits.update.report.rank_report", fails)
    match = r"is not a complete DifferentialRank run \(KeyError\)"
    with pytest.raises(RunError, match=match) as caught:
        report_of(saved(rank([SECRET])), show_secrets=False)
    assert SECRET not in str(caught.value)
