"""No secret reaches a terminal, a log or a page unless `--show-secrets` asks for it.

Every secret of the workspace is marked, and so is whatever a verb makes of it: no output may hold
the mark, whether the verb does its work or refuses it.
"""

import pytest

from tests.cli import secret_cases
from vestige.cli.main import VERBS


def test_every_verb_has_its_cases():
    assert set(secret_cases.CASES) == set(VERBS)


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

    assert done.exit_code == {"ok": 0, "no": 2}[ends], (done.stderr, done.exception)
    assert not marks(done.stdout + done.stderr)
    for log in out.rglob("log.jsonl"):
        assert not marks(log.read_text())
    for number, run in enumerate(out.rglob("run.json")):
        page = tmp_path / f"{number}.html"
        made = shell("report", run.parent, "--out", page)
        assert made.exit_code == 0, made.stderr
        assert not marks(page.read_text() + made.stdout + made.stderr)
    if out.is_file():
        assert not marks(out.read_text())


def marks(text):
    """What stands around each mark."""
    text = text.casefold()
    places = [n for n in range(len(text)) if text.startswith(secret_cases.MARK, n)]
    return [text[max(0, n - 60) : n + 30] for n in places]
