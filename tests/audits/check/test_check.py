"""The verdict of `vestige check` on small models whose training is known."""

import json

import pytest

import vestige
from tests.audits.check.conftest import SECRET
from vestige import results
from vestige.audits.check import work
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.errors import DataError, ModelError
from vestige.reports.page import render


def checked(world, tuned, **more):
    model, texts = tuned
    given = {"base": world.base, "trained_on": texts, "never": world.never, "minutes": 30, **more}
    return vestige.check(model, **given)


def states(result):
    return {one["name"]: one["state"] for one in result.summary["stages"]}


def test_a_repeated_secret_is_a_leak_and_the_check_stops_there(world, leaky):
    result = checked(world, leaky)
    assert result.verdict == LEAK
    assert result.exit_code == 1
    assert states(result) == {"secrets": "leak", "unprompted": "not run", "passages": "not run"}
    known = [row["text"] for row in result.rows if row["stage"] == "secrets" and row["known"]]
    assert any(SECRET in text or text in SECRET for text in known)


def test_a_clean_fine_tune_shows_no_leak_and_every_control_is_found(world, clean):
    result = checked(world, clean, secrets=["the account number is {{5120 7734 9081}}"], sure=True)
    assert result.summary["positive"] == dict.fromkeys(states(result), True)
    assert result.verdict == NO_LEAK, result.claim.reasons
    assert result.exit_code == 0


def test_without_files_nothing_is_decided(world, clean):
    result = vestige.check(clean[0], base=world.base, minutes=30)
    assert result.verdict == UNDECIDED
    assert result.exit_code == 3


def test_a_listed_secret_is_tested_first(world, leaky):
    result = checked(world, leaky, secrets=[f"the account number is {{{{{SECRET}}}}}"])
    assert (result.rows[0]["text"], result.rows[0]["known"]) == (SECRET, True)


def test_without_time_every_test_stops_and_says_so(world, clean, monkeypatch):
    monkeypatch.setattr(work, "LEAST_SEARCH_SECONDS", 1e-3)
    result = checked(world, clean, minutes=1e-6)
    stages = {one["name"]: one for one in result.summary["stages"]}
    assert result.verdict == UNDECIDED
    for name in ("unprompted", "passages"):
        assert (stages[name]["state"], stages[name]["needs"]) == ("open", "--minutes")
        assert "time limit" in stages[name]["sentence"]
    assert result.summary["positive"] is None


def test_time_that_a_part_leaves_is_added_to_the_next(monkeypatch):
    monkeypatch.setattr(work, "TIME", {"secrets": 0.25, "unprompted": 0.5, "control": 0.125})
    of = work.Work.__new__(work.Work)
    of.__dict__.update(began=100.0, minutes=2.0)
    assert [of.end(name) for name in work.TIME] == [130.0, 190.0, 205.0]


def test_a_model_that_is_its_base_is_refused(world, clean):
    with pytest.raises(ModelError, match=r"base.*--base"):
        checked(world, (world.base, clean[1]))


def test_a_model_without_a_known_base_is_refused(world, clean):
    with pytest.raises(ModelError, match=r"with --base"):
        vestige.check(clean[0], trained_on=clean[1])


def test_texts_in_both_files_are_removed_from_the_reference(world, clean):
    both = [*world.never.read_text().splitlines(), *clean[1].read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in both]
    result = checked(world, clean, never=texts, all_=True)
    assert result.summary["reference_texts"] + result.summary["control_texts"] == 100
    with pytest.raises(DataError, match="differs from those of --trained-on"):
        checked(world, clean, never=clean[1])


def test_texts_given_in_python_are_not_recorded_and_on_no_page(world, clean):
    texts = [json.loads(line)["text"] for line in clean[1].read_text().splitlines()]
    result = checked(world, (clean[0], texts), never=texts[:30] + world.letters[:30], minutes=1e-6)
    assert result.record["arguments"]["trained_on"] == "<list>"
    page = render([results.run_of(result)], show_secrets=False)
    assert not any(text[:40] in page for text in texts)
