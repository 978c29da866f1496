"""Verdicts and sentences on defences follow from intervals."""

import pytest

from vestige.audits.comparison.verdict import Difference, answer, judge
from vestige.metrics.estimates import Estimate

LESS, SAME, MORE = (
    Estimate("", *ends) for ends in ((-3.0, -4.0, -2.0), (-0.5, -1.5, 0.5), (2.0, 1.0, 3.0))
)
EQUAL, UNSURE, HIGHER, LOWER = (
    Estimate("", *ends)
    for ends in ((1.01, 0.99, 1.03), (1.04, 1.00, 1.08), (1.23, 1.18, 1.28), (0.90, 0.88, 0.92))
)


def measured(name, exposure, ratio, **other):
    difference = Difference(name=name, exposure=exposure, perplexity_ratio=ratio, **other)
    return difference, judge(difference, tolerance=0.05)


def judged(exposure, ratio, **other):
    return measured("x", exposure, ratio, **other)[1]


@pytest.mark.parametrize(
    ("exposure", "ratio", "kind"),
    [
        (LESS, EQUAL, "helps"),
        (LESS, LOWER, "helps"),
        (LESS, UNSURE, "unclear"),
        (LESS, HIGHER, "incomparable"),
        (SAME, EQUAL, "none"),
        (SAME, UNSURE, "none"),
        (SAME, HIGHER, "none"),
        (SAME, LOWER, "incomparable"),
        (MORE, EQUAL, "worse"),
        (MORE, UNSURE, "worse"),
        (MORE, HIGHER, "worse"),
        (MORE, LOWER, "incomparable"),
        (LESS, None, "unmeasured"),
        (SAME, None, "unmeasured"),
        (None, EQUAL, "unmeasured"),
        (None, None, "unmeasured"),
    ],
)
def test_verdict_and_sentence_follow_from_the_intervals(exposure, ratio, kind):
    verdict = judged(exposure, ratio)
    assert verdict.kind == kind
    if exposure is SAME:
        assert "No measurable difference in leakage: -0.5 bits (-1.5 to 0.5)" in verdict.sentence
        assert " bits less" not in verdict.sentence
        assert " bits more" not in verdict.sentence
    if ratio is not EQUAL:
        assert "at the same test perplexity" not in verdict.sentence


@pytest.mark.parametrize(
    ("exposure", "ratio", "more", "short", "sentence"),
    [
        (
            LESS, Estimate("", 1.0, 0.8, 1.25), {}, "leaks less, utility unclear",
            "Leaks 3.0 bits less (2.0 to 4.0); its test perplexity may or may not be the same "
            "(+0.0%; -20.0% to +25.0%).",
        ),
        (
            LESS, HIGHER, {}, "not comparable",
            "Not comparable: its test perplexity is 23% higher; 5% is allowed. Leaks 3.0 bits less "
            "(2.0 to 4.0), which less training alone can explain.",
        ),
        (
            LESS, EQUAL,
            {"tokens_ratio": 1.8, "memory_ratio": 1.05, "gap": Estimate("gap", 5.0, 2.0, 9.0)},
            "leaks less at the same utility, at a price",
            "It costs 1.8 times the tokens and users with few samples 2.0 to 9.0 points of "
            "perplexity more than those with many.",
        ),
        (
            LESS, EQUAL, {"gap": Estimate("gap", 4.0, -1.0, 9.0)},  # not significant
            "leaks less at the same utility",
            "Leaks 3.0 bits less (2.0 to 4.0) at the same test perplexity (+1.0%).",
        ),
        (
            LESS, EQUAL, {"exposure_over_shuffled": Estimate("", 0.0, -1.0, 0.5)},
            "leaks less at the same utility",
            "Other orders of the canaries' words lose as much: perhaps it unlearned only words.",
        ),
        (
            LESS, EQUAL, {"exposure_over_shuffled": Estimate("", -2.0, -3.0, -0.5)},
            "leaks less at the same utility",
            "Leaks 3.0 bits less (2.0 to 4.0) at the same test perplexity (+1.0%).",
        ),
        (
            SAME, EQUAL, {"saturated": (10, 40)}, "no measurable difference",
            "No measurable difference in leakage: -0.5 bits (-1.5 to 0.5) (up to the ceiling: 10 "
            "of the 40 canaries are more probable than every reference in all of these trainings) "
            "at the same test perplexity (+1.0%).",
        ),
        (
            Estimate("", 0.0, 0.0, 0.0), EQUAL, {"saturated": (40, 40)},
            "leakage above the ceiling",
            "all 40 canaries are more probable than every reference in all of these trainings).",
        ),
    ],
)  # fmt: skip
def test_sentences_have_numbers_costs_and_caveats(exposure, ratio, more, short, sentence):
    verdict = judged(exposure, ratio, **more)
    assert verdict.short == short
    assert verdict.sentence.endswith(sentence)


@pytest.mark.parametrize("trainings", [(1, 1), (2, 4), (4, 2)])
def test_too_few_trainings_get_numbers_and_no_verdict(trainings):
    pair = measured("x", Estimate("", -3.0), Estimate("", 1.01), trainings=trainings)
    verdict, needed = pair[1], "erdict needs 3 trainings of each, with different seeds"
    assert (verdict.kind, verdict.short) == ("too few", "no verdict: too few trainings")
    assert "exposure -3.0 bits and test perplexity +1.0%" in verdict.sentence
    assert needed in verdict.sentence
    [line] = answer([pair], best=None, leaks=True)
    assert line == f"No defence can be judged: a v{needed} (train --seeds)."


@pytest.mark.parametrize(
    ("pairs", "options", "first", "last"),
    [
        (
            [measured("gold", LESS, EQUAL, tokens_ratio=1.8)], {"best": "gold"},
            "gold lowers exposure by 3.0 bits (2.0 to 4.0) at equal utility (test perplexity "
            "+1.0%).",
            "It costs 1.8 times the tokens.",
        ),
        (
            [measured("gold", LESS, LOWER)], {"best": "gold"},
            "gold lowers exposure by 3.0 bits (2.0 to 4.0) and predicts better (test perplexity "
            "-10.0%).",
            "",
        ),
        (
            [measured("gold", LESS, EQUAL, saturated=(2, 20))], {"best": "gold"},
            "gold lowers exposure by 3.0 bits (2.0 to 4.0) (up to the ceiling: 2 of the 20",
            "",
        ),
        (
            [measured("a", SAME, EQUAL), measured("b", LESS, HIGHER)], {},
            "No defence is shown to lower exposure at equal utility.",
            "b (+23.0%) leaks less, but at another test perplexity: compare with an undefended "
            "training stopped there (--stop-at-perplexity).",
        ),
        (
            [measured("a", SAME, EQUAL)], {"leaks": False},
            "No defence is needed on this evidence: the undefended", "",
        ),
        (
            [measured("a", None, EQUAL)], {"leaks": None},
            "No defence can be judged: leakage and utility were not both measured.", "",
        ),
        (
            [measured("a", LESS, EQUAL), measured("b", LESS, EQUAL),
             measured("dp", LESS, HIGHER, guarantee="ε = 4.9")],
            {"best": "a", "ties": ["b"]},
            "a lowers exposure by 3.0 bits (2.0 to 4.0) at equal utility (test perplexity +1.0%). "
            "Its leakage does not differ significantly from b.",
            "Only dp (ε = 4.9) comes with a guarantee.",
        ),
    ],
)  # fmt: skip
def test_the_answer_begins_with_the_verdict(pairs, options, first, last):
    text = " ".join(answer(pairs, **{"best": None, "leaks": True, **options}))
    assert text.startswith(first)
    assert text.endswith(last)
