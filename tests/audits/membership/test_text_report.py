"""The page of an audit of texts begins with its answer, and never says more than its numbers."""

from dataclasses import replace

import numpy as np
from vestige.reports.texts import LIMITS, NOTHING_SAID, answer, notices

from tests.attacks.texts.made_texts import PASSED, cut_scores
from vestige.attacks.texts.text_audit import Scored, audit_scores
from vestige.claims import Check
from vestige.metrics.share_used import ShareUsed
from vestige.reports.page import render

TOLD = {"score": "log-ratio", "texts_tokens": 60.0, "reference_tokens": 55.0}


def made(used, never, *, gain=3.0, known=0, reference=200):
    chance = np.random.default_rng(0)
    parts = [cut_scores(n, g, chance) for n, g in ((used, gain), (never, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    count = used + never
    found = audit_scores(
        Scored(texts),
        Scored(cut_scores(reference, 0.0, chance)),
        Scored(cut_scores(known, gain, chance)) if known else None,
    )
    excerpts = tuple(f"<b>Rosalind {n}</b> \x1b[31m" for n in range(count))
    more = {"tokens": texts.lengths.tolist(), "excerpts": excerpts, "statistics": TOLD}
    return replace(found, checks=PASSED, **more)


def test_used_texts_are_counted_from_both_sides_first():
    summary = made(12, 28, known=40).summary()
    first, because = answer(summary)
    least, most, named = (summary[name] for name in ("at_least", "at_most", "named"))
    assert first == (
        f"At least {least} and at most {most} of 40 texts were used (95 % confidence)."
    )
    assert because.startswith(f"{named} of these 40 texts are named; of texts that are named so, 5")
    assert "not thereby excluded" in because
    assert not notices(summary)


def test_without_known_ones_the_upper_bound_is_refused_with_what_is_missing():
    first, because = answer(made(12, 28).summary())
    assert "at most" not in first
    assert "it takes texts that are known to have been used" in because


def test_not_used_is_a_claim_with_a_number():
    summary = made(0, 40, known=20, gain=1.5).summary()
    assert 1 < summary["at_most"] < 30
    first, because = answer(summary)
    assert first == (
        f"At most {summary['at_most']} of 40 texts were used (95 % confidence), and none is shown "
        "to have been."
    )
    assert "holds for texts that were used as they were" in because


def test_where_nothing_bounds_it_nothing_is_shown_and_nothing_excluded():
    for known in (0, 20):
        summary = made(0, 40, known=known, gain=0.0).summary()
        first, because = answer(summary)
        assert first.startswith("The model knows these 40 texts no better")
        assert "does not prove that they were not used" in because
        assert ("it takes texts" if not known else "All of them can have been used") in because


def test_where_a_check_did_not_pass_nothing_is_said_before_that():
    found = made(12, 28, known=40)
    unlike = Check("comparable", "failed", "The texts differ from the reference in length.")
    first, because = answer(replace(found, checks=(*PASSED, unlike)).summary())
    assert first == NOTHING_SAID
    assert f"The scores alone would say: “{answer(found.summary())[0]}" in because


def test_bounds_that_contradict_each_other_are_told_of():
    found = made(12, 28, known=40)
    odd = replace(found, share=ShareUsed(listed=40, at_least=12, at_most=3)).summary()
    assert answer(odd)[0] == "At least 12 of 40 texts were used (95 % confidence)."
    assert "contradict each other" in " ".join(notices(odd))


def test_few_texts_of_reference_say_how_many_it_takes():
    told = " ".join(notices(made(1, 39, reference=60).summary()))
    assert "no text is named before 14 stand above all of them at once; 799 would" in told


def test_the_page_shows_texts_only_when_asked_to_and_never_as_markup(saved):
    run = saved(made(12, 28, known=40))
    hidden = render([run], show_secrets=False)
    shown = render([run], show_secrets=True)
    assert "Rosalind" not in hidden
    assert "&lt;b&gt;Rosalind" in shown
    assert "<b>Rosalind" not in shown
    assert "\x1b" not in shown


def test_the_box_for_an_officer_has_the_answer_and_what_it_does_not_say(saved):
    found = made(12, 28, known=40)
    page = render([saved(found)], show_secrets=False)
    box = page.partition("For a data-protection officer")[2].partition("How it was measured")[0]
    assert "Whether these 40 texts were among the training data" in box
    assert answer(found.summary())[0] in box
    assert "What it does not say" in box
    assert all(limit in box for limit in LIMITS)
    assert page.index(answer(found.summary())[0]) < page.index("</figure>") < page.index(box)
