from vestige.cli import terminal


def test_markup_and_escapes_in_a_table_are_shown_and_not_followed(capsys):
    rows = [("[bold red]x[/]", 1.0, None), ("\x1b[31malarm\x07", 2.0, True)]
    terminal.show_table("[b]title[/b] \x1b]0;t", ["a", "b", "c"], rows)
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
    with terminal.progress("counting") as bar:
        bar(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    with terminal.progress("counting [slowly]") as bar:
        bar(1, 2)
        bar(2, 2)
    assert "counting [slowly]" in capsys.readouterr().err
