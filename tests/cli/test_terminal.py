from types import SimpleNamespace

import pytest

from vestige.cli import terminal
from vestige.reports.blocks import table
from vestige.reports.terminal import show_table


@pytest.fixture
def clock(monkeypatch):
    """Time that goes on when it is told to."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_markup_and_escapes_in_a_table_are_shown_and_not_followed(capsys):
    rows = [("[bold red]x[/]", 1.0, None), ("\x1b[31malarm\x07", 2.0, True)]
    columns = {name: lambda row, place=place: row[place] for place, name in enumerate("abc")}
    show_table(table("[b]title[/b] \x1b]0;t", rows, columns))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold red]x[/]" in shown
    assert "\\x1b[31malarm\\x07" in shown
    assert "[b]title[/b] \\x1b]0;t" in shown


def test_words_for_the_reader_go_to_stderr(capsys):
    terminal.say("done \x1b[0m")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "done \\x1b[0m\n")


def test_undefined_numbers_are_null_in_json(capsys):
    terminal.show_json({"threshold": float("nan")})
    assert capsys.readouterr().out == '{\n  "threshold": null\n}\n'


def test_a_bar_appears_only_for_those_who_wait(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with terminal.Terminal().progress("counting") as bar:
        bar(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    with terminal.Terminal().progress("counting [slowly]") as bar:
        bar(1, 2)
        bar(2, 2)
    assert "counting [slowly]" in capsys.readouterr().err


def lines_of(capsys):
    shown = capsys.readouterr()
    assert shown.out == ""  # it holds the result alone
    return shown.err.splitlines()


def test_without_a_terminal_a_line_says_where_the_work_is(clock, capsys):
    with terminal.Terminal().progress("training") as bar:
        for step in range(301):
            clock.now += 1
            bar(step, 1200)
    assert lines_of(capsys) == [
        "training: 29 of 1,200 (2%), 30 s so far, about 20 min 11 s to go",
        "training: 59 of 1,200 (5%), 1 min 00 s so far, about 19 min 20 s to go",
        *(f"training: {s - 1} of 1,200 ({(s - 1) / 12:.0f}%), {terminal._span(s)} so far, about "
          f"{terminal._span(s * (1201 - s) / (s - 1))} to go" for s in range(90, 301, 30)),
    ]  # fmt: skip


def test_short_work_says_nothing(clock, capsys):
    with terminal.Terminal().progress("encoding") as bar:
        for step in range(29):
            clock.now += 1
            bar(step, 29)
    assert lines_of(capsys) == []


def test_what_was_done_before_is_not_this_works_speed(clock, capsys):
    with terminal.Terminal().progress("training") as bar:
        bar(1000, 1200)
        clock.now += 100
        bar(1100, 1200)
    assert lines_of(capsys) == [
        "training: 1,100 of 1,200 (92%), 1 min 40 s so far, about 1 min 40 s to go"
    ]


def test_work_without_an_end_says_how_much_is_done(clock, capsys):
    with terminal.Terminal().progress("training \x1b[31m shadows") as bar:
        clock.now += 7500
        bar(3)
    assert lines_of(capsys) == ["training \\x1b[31m shadows: 3 done, 2 h 05 min so far"]
