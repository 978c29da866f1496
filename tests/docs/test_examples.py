"""The Python sessions of the documents give the printed output."""

import doctest

import pytest

from tests.docs.documents import REPOSITORY, blocks, documents
from vestige.data.formats.reading import CORPUS_FORMATS
from vestige.defences.registry import DEFENCES

SESSIONS = {
    path.relative_to(REPOSITORY).as_posix(): sessions
    for path in documents()
    if (sessions := [block for block in blocks(path) if block.language == "pycon"])
}


def test_sessions_are_collected():
    assert "docs/api/data.md" in SESSIONS


@pytest.fixture(autouse=True)
def restored_registries(monkeypatch):
    """Remove the entries that a session registers."""
    for registry in (DEFENCES, CORPUS_FORMATS):
        assert registry.names()
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@pytest.mark.slow
@pytest.mark.parametrize("document", SESSIONS)
def test_sessions_give_the_printed_output(document, tmp_path, monkeypatch):
    """The blocks of one document are one session in a new folder."""
    monkeypatch.chdir(tmp_path)
    runner, names, output = doctest.DocTestRunner(verbose=False), {}, []
    for block in SESSIONS[document]:
        test = doctest.DocTestParser().get_doctest(
            block.text, names, document, document, block.line - 1
        )
        runner.run(test, out=output.append, clear_globs=False)
        names = test.globs
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
