"""No secret reaches a terminal, a log or a page unless `--show-secrets` asks for it.

Every secret of the workspace is marked, and so is whatever a verb makes of it: no output may hold
the mark, whether the verb does its work or refuses it.
"""

from typing import get_args

import pytest

from tests.cli import secret_cases
from vestige.cli import app
from vestige.reports.disclosure import SECRET_OPTIONS


def test_every_verb_has_its_cases():
    assert set(secret_cases.CASES) == set(app.names())


@pytest.mark.parametrize(
    ("verb", "line"),
    [(verb, line) for verb, lines in secret_cases.CASES.items() for line in lines],
    ids=lambda text: text[:70],
)
@pytest.mark.filterwarnings("ignore")  # of damaged models
def test_no_secret_is_shown(shell, marked, tmp_path, monkeypatch, verb, line):
    monkeypatch.chdir(marked)
    ends, _, words = line.partition(" ")
    out = tmp_path / ("page.html" if verb == "report" else "out")

    done = shell(verb, *secret_cases.filled(words, marked, out))

    assert done.finished if ends == "ok" else done.exit_code == 2, (done.stderr, done.exception)
    assert not marks(done.stdout + done.stderr)
    for name in ("log.jsonl", "page.html", "card.md", "check.json", "junit.xml"):
        for file in out.rglob(name):
            assert not marks(file.read_text())
    for number, run in enumerate(out.rglob("run.json")):
        page = tmp_path / f"{number}.html"
        made = shell("report", run.parent, "--out", page)
        assert made.finished, made.stderr
        assert not marks(page.read_text() + made.stdout + made.stderr)
    if out.is_file():
        assert not marks(out.read_text())


PUBLIC = {
    "--accountant", "--also", "--author", "--base", "--baseline", "--before", "--cluster",
    "--clean", "--column", "--deleted", "--device", "--fail-above", "--format",
    "--frequencies", "--from", "--intent", "--intent-column", "--key-env", "--null", "--optimizer",
    "--never", "--pattern", "--precision", "--prefix", "--preset", "--reference",
    "--reference-model",
    "--repetitions", "--retrained", "--sampled-from", "--score", "--seen", "--shadow-texts",
    "--slot", "--slots", "--source", "--suffix", "--table", "--tags-column", "--test", "--text",
    "--texts", "--tokens-column", "--trained-on", "--unseen", "--used", "--user",
    "--validation", "--vectors", "--vocabulary",
}  # fmt: skip
"""Options of text that is no secret: files, columns, names of settings, and the words around a
secret, by which pages call it. Before an option is put here: may its value be what is looked for?
"""


def is_text(argument):
    """Whether an option takes any text, once or several times."""
    hint = argument.hint
    return hint is str or str in get_args(hint)


def text_options(name):
    """The options of a verb whose value is any text."""
    verb = app.verb_app(name, app.function_of(name))
    options = verb.assemble_argument_collection(parse_docstring=False)
    return {
        each.name
        for each in options
        if each.names and not each.field_info.is_positional and is_text(each)
    }


@pytest.mark.parametrize("verb", app.names())
def test_every_option_of_text_is_said_to_be_secret_or_public(verb):
    assert text_options(verb) <= PUBLIC | SECRET_OPTIONS
    assert not PUBLIC & SECRET_OPTIONS


@pytest.mark.parametrize("verb", ["plant", "diff", "exposure", "extract"])
def test_every_mark_is_found_where_secrets_are_asked_for(shell, marked, tmp_path, verb):
    """What the other tests look for is there to be found."""
    line = secret_cases.CASES[verb][0].partition(" ")[2]
    done = shell(verb, *secret_cases.filled(line, marked, tmp_path / "out"), "--show-secrets")
    assert done.finished, done.stderr
    assert marks(done.stdout)


def marks(text):
    """What stands around each mark."""
    text = text.casefold()
    places = [n for n in range(len(text)) if text.startswith(secret_cases.MARK, n)]
    return [text[max(0, n - 60) : n + 30] for n in places]
