"""The Python sessions of the documents give what is printed under them."""

import doctest

import pytest

from tests.docs.documents import REPOSITORY, Block, blocks, documents
from vestige.data.formats.reading import CORPUS_FORMATS
from vestige.defences.registry import DEFENCES

SESSIONS = {
    path.relative_to(REPOSITORY).as_posix(): sessions
    for path in documents()
    if (sessions := [block for block in blocks(path) if block.language == "pycon"])
}


def test_there_are_sessions():
    assert "docs/api/data.md" in SESSIONS


@pytest.fixture(autouse=True)
def registries_stay(monkeypatch):
    """What a session registers is gone after it."""
    for registry in (DEFENCES, CORPUS_FORMATS):
        assert registry.names()
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@pytest.mark.slow
@pytest.mark.parametrize("document", SESSIONS)
def test_a_session_gives_what_is_printed(document, tmp_path, monkeypatch):
    """All sessions of one document are one session, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    runner, names, said = doctest.DocTestRunner(verbose=False), {}, []
    for block in SESSIONS[document]:
        test = _parsed(block, names)
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def _parsed(block: Block, names: dict[str, object]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(
        block.text, names, block.document, block.document, block.line - 1
    )
