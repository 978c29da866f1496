"""Faults that gave no error: canaries that are there, people taken for bots, equal fingerprints."""

import os
import threading

import pytest

from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.users import is_person
from vestige.data.utterances import Utterance, Utterances, fault
from vestige.data.writing import share


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\x0b", "\x1c", "\x85", " \u00a0"])
def test_a_canary_between_other_blanks_than_asciis_is_found(blank):
    """Arrow's expressions know the blanks of ASCII only: a canary could be in the corpus unseen."""
    corpus = Corpus.from_texts([f"say crimson{blank}falcon again", "nothing here"])
    assert occurrences(corpus, ["crimson falcon", "nothing there"]) == [1, 0]


@pytest.mark.parametrize("name", ["Talbot", "talbot42", "Abbott", "robotics", "BOTANIST", "Cabot"])
def test_a_name_that_holds_bot_is_a_persons(name):
    assert is_person(name)


@pytest.mark.parametrize("name", ["RemindMeBot", "wiki_bot", "bot", "Bot-7", "TweetPosterBOT"])
def test_a_name_with_the_word_bot_is_none(name):
    assert not is_person(name)


def test_utterances_whose_labels_hold_separators_have_fingerprints_of_their_own():
    one, other = (
        Utterances.of([Utterance(("go",), ("O",), first), Utterance(("go",), ("O",), second)])
        for first, second in (("A\x1eB", "C"), ("A", "B\x1eC"))
    )
    assert one.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "row",
    [
        Utterance(("go", "new york"), ("O", "O"), "Go"),
        Utterance(("go", "far"), ("O", "secret-word"), "Go"),
        Utterance(("go", "far"), ("O", "I-secret"), "Go"),
    ],
)
def test_a_fault_of_an_utterance_quotes_no_word_and_no_label(row):
    said = fault(row)
    assert said
    assert "york" not in said
    assert "secret" not in said


def test_modes_are_given_without_a_change_of_the_umask(tmp_path, monkeypatch):
    """Another thread would write its files under the changed one."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("this system does not show a process's umask")
    (tmp_path / "file").touch(mode=0o600)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
    threads = [threading.Thread(target=share, args=(tmp_path,)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (tmp_path / "file").stat().st_mode & 0o600 == 0o600


def test_more_copies_than_fit_the_memory_are_refused():
    with pytest.raises(ValueError, match=r"`copies` must be at most 1,000,000 in all"):
        plant(Corpus.from_texts(["a line"]), [Canary("a canary", "given", (), 10**9)], seed=0)
