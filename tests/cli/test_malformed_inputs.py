"""Bad input of every kind: one clear message with its remedy, exit code 2, nothing written."""

import pytest

from tests.cli.refusals import listing, refused, table


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("inputs"))
def test_bad_input_is_refused(shell, workspace, words, says):
    given = (word.replace("W/", f"{workspace}/", 1) for word in words.split(" "))
    refused(shell, given, *says, unchanged=lambda: listing(workspace))


@pytest.mark.slow
def test_a_null_of_another_vocabulary_is_refused_and_the_search_is_kept(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "new"]
    refused = shell(*words, "--null", workspace / "other-words")
    assert refused.exit_code == 2
    assert "vocabularies" in refused.stderr
    assert not (tmp_path / "new").exists()

    assert shell(*words).finished
    assert [one.name for one in tmp_path.iterdir()] == ["new"]
