"""Every kind of display begins with the verdict, its test, and the checks that failed."""

import re

import pytest

from tests.reports.made_claims import made_checks, made_claim, with_claim
from tests.reports.parsed import Parsed
from tests.reports.test_page import ALLOWED
from vestige import results
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, VERDICTS, Check, Direct, Estimate, Test
from vestige.reports import notebook
from vestige.reports.page import card, render
from vestige.reports.verdicts import verdict_of

SENTENCE = (
    "Exposure: 7.5 bits (95% CI 6.9 to 8.1); p = 0.001 compared with the controls (level 0.05)."
)


def diffed(diff, verdict, **more):
    return with_claim(diff([["a", " b"]], threshold=2.0), made_claim("diff", verdict, **more))


def test_the_sentence_is_the_estimate_with_its_interval_and_test():
    verdict = verdict_of(made_claim("diff", LEAK))
    assert (verdict.word, verdict.sentence) == ("LEAK", SENTENCE)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"estimate": None, "test": None}, "Nothing was measured."),
        (
            {"estimate": Estimate("texts used", 12.0, 10.0, None, "texts"), "test": None},
            "Texts used: 12 texts (95% CI from 10).",
        ),
        (
            {"estimate": Estimate("x", float("nan")), "test": Test(0.5, 0.1, 0.05, "Y")},
            "p = 0.5 compared with Y (level 0.05).",
        ),
        (
            {"estimate": None, "test": None, "direct": Direct("Secret 1 was generated.", 0.01)},
            "Secret 1 was generated.",
        ),
    ],
)
def test_what_was_not_measured_is_left_out_of_the_sentence(more, sentence):
    assert verdict_of(made_claim("diff", UNDECIDED, **more)).sentence == sentence


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_page_begins_with_the_verdict_its_evidence_and_failed_checks_then_passed_ones(
    diff, verdict
):
    failing, open_ = ("different",), ("alive",)
    more = (
        {}
        if verdict != UNDECIDED
        else {"checks": made_checks("diff", failing=failing, open_=open_)}
    )
    page = Parsed(render([results.run_of(diffed(diff, verdict, **more))], show_secrets=False))
    told = " ".join(page.text.split())
    places = [
        told.index(verdict.upper()),
        told.index(page.evidence[0]),
        told.index("Checks passed: "),
    ]
    if more:
        sentences = [f"The check “{name}” of diff" for name in ("different", "alive")]
        places[2:2] = map(told.index, sentences)
    assert places == sorted(places)
    assert "claim" not in page.facts
    assert "verdict" not in page.facts
    assert "'checks'" not in page.text


def test_notebook_text_and_card_begin_with_the_verdict_and_its_failed_checks(diff):
    result = diffed(diff, UNDECIDED)
    failed = "The check “powerful” of diff failed."
    for told in (
        " ".join(Parsed(notebook.html(result)).text.split()),
        notebook.text(result),
        card([results.run_of(result)]),
    ):
        assert (
            told.index("UNDECIDED")
            < told.index(failed)
            < told.index("Checks passed: alive, different")
        )


def test_a_hostile_claim_is_text(diff):
    odd = "<script>alert(1)</script>\x1b[31m\u202e{{ 7 }}"
    more = {
        "checks": (*made_checks("diff"), Check("alive", "failed", odd), Check(odd, "passed", odd)),
        "estimate": Estimate(odd, 1.0, unit=odd),
        "test": Test(0.4, 0.1, 0.05, odd),
        "direct": Direct(odd, 1.0),
    }
    result = diffed(diff, UNDECIDED, **more)
    for page in (render([results.run_of(result)], show_secrets=False), notebook.html(result)):
        assert {tag for tag, _ in Parsed(page).tags} <= ALLOWED
        assert not re.search("[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e]", page)
    assert "\x1b" not in notebook.text(result) + card([results.run_of(result)])


def test_a_verdict_without_a_claim_is_said_to_be_unchecked(diff, saved):
    page = Parsed(render([saved(diff([["a"]]))], show_secrets=False))
    assert page.verdict.startswith("NOT CHECKED This run has no checked verdict")


def test_a_run_without_checksums_is_said_to_be_unchecked(diff, tmp_path):
    folder = results.save(diffed(diff, NO_LEAK), tmp_path / "run", run={})
    file = folder / "run.json"
    file.write_text(re.sub(r'"files": {[^}]*}', '"files": null', file.read_text()))
    page = Parsed(render([results.load(folder)], show_secrets=False))
    assert page.verdict.startswith("NOT CHECKED This run has no checked verdict")
    assert "NO LEAK SHOWN" not in page.text
