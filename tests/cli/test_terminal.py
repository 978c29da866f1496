"""Terminal output is escaped, short, and separate from the result."""

from types import SimpleNamespace

import pytest

from vestige.cli import terminal


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests move."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def lines_of(capsys):
    output = capsys.readouterr()
    assert output.out == ""  # standard output has the result alone
    return output.err.splitlines()


def test_messages_are_escaped_and_printed_on_stderr(capsys):
    terminal.say("done \x1b[0m")
    assert lines_of(capsys) == ["done \\x1b[0m"]


def test_undefined_numbers_are_null_in_json(capsys):
    terminal.show_json({"threshold": float("nan")})
    assert capsys.readouterr().out == '{\n  "threshold": null\n}\n'


def test_a_progress_bar_appears_only_for_long_tasks(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with terminal.Terminal().progress("counting") as bar:
        bar(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "BAR_DELAY", -1.0)
    with terminal.Terminal().progress("counting [slowly]") as bar:
        bar(1, 2)
        bar(2, 2)
    assert "counting [slowly]" in capsys.readouterr().err


def test_without_a_terminal_progress_is_logged_in_lines(clock, capsys):
    with terminal.Terminal().progress("training") as bar:
        for step in range(301):
            clock.now += 1
            bar(step, 1200)
    assert lines_of(capsys) == [
        "training: 29 of 1,200 (2%), 30 s so far, about 20 min 11 s to go",
        "training: 59 of 1,200 (5%), 1 min 00 s so far, about 19 min 20 s to go",
        *(f"training: {s - 1} of 1,200 ({(s - 1) / 12:.0f}%), {terminal._duration(s)} so far, "
          f"about {terminal._duration(s * (1201 - s) / (s - 1))} to go"
          for s in range(90, 301, 30)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "steps", "lines"),
    [
        ("encoding", [(1, n, 29) for n in range(29)], []),  # short work logs nothing
        (  # the speed ignores steps of an earlier run
            "training",
            [(0, 1000, 1200), (100, 1100, 1200)],
            ["training: 1,100 of 1,200 (92%), 1 min 40 s so far, about 1 min 40 s to go"],
        ),
        (  # without a total
            "training \x1b[31m shadows",
            [(7500, 3)],
            ["training \\x1b[31m shadows: 3 done, 2 h 05 min so far"],
        ),
    ],
)
def test_progress_lines_have_share_and_remaining_time(clock, capsys, task, steps, lines):
    with terminal.Terminal().progress(task) as bar:
        for seconds, *done in steps:
            clock.now += seconds
            bar(*done)
    assert lines_of(capsys) == lines
