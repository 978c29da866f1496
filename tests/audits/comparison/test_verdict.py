import pytest

from vestige.audits.comparison.verdict import Difference, answer, judge
from vestige.metrics.estimates import Estimate

LESS = Estimate("", -3.0, -4.0, -2.0)
SAME = Estimate("", -0.5, -1.5, 0.5)
MORE = Estimate("", 2.0, 1.0, 3.0)
EQUAL = Estimate("", 1.01, 0.99, 1.03)
UNSURE = Estimate("", 1.04, 1.00, 1.08)
HIGHER = Estimate("", 1.23, 1.18, 1.28)
LOWER = Estimate("", 0.90, 0.88, 0.92)


def judged(change=None, ratio=None, **other):
    return judge(Difference(name="x", change=change, ratio=ratio, **other), tolerance=0.05)


@pytest.mark.parametrize(
    ("change", "ratio", "kind"),
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
        (None, EQUAL, "unmeasured"),
        (None, None, "unmeasured"),
    ],
)
def test_the_verdict_follows_from_the_intervals(change, ratio, kind):
    assert judged(change, ratio).kind == kind


@pytest.mark.parametrize("ratio", [EQUAL, UNSURE, HIGHER, LOWER, None])
def test_no_sentence_says_less_or_more_where_the_interval_holds_zero(ratio):
    told = judged(SAME, ratio).sentence
    assert "No measurable difference in leakage: -0.5 bits (-1.5 to 0.5)" in told
    assert " bits less" not in told
    assert " bits more" not in told


@pytest.mark.parametrize("change", [LESS, SAME, MORE])
@pytest.mark.parametrize("ratio", [UNSURE, HIGHER, LOWER])
def test_no_sentence_says_the_same_perplexity_unless_the_interval_lies_in_the_tolerance(
    change, ratio
):
    assert "at the same test perplexity" not in judged(change, ratio).sentence


def test_a_wide_interval_around_one_is_not_equal_utility():
    told = judged(LESS, Estimate("", 1.0, 0.8, 1.25))
    assert told.kind == "unclear"
    assert told.sentence.startswith(
        "Leaks 3.0 bits less (2.0 to 4.0); its test perplexity may or may not be the same (+0.0%; "
        "-20.0% to +25.0%)."
    )


def test_less_leakage_at_a_higher_perplexity_is_not_called_protection():
    told = judged(LESS, HIGHER).sentence
    assert told == (
        "Not comparable: its test perplexity is 23% higher; 5% is allowed. "
        "Leaks 3.0 bits less (2.0 to 4.0), which less training alone can explain."
    )


def test_prices_are_named_from_a_tenth_on():
    told = judged(LESS, EQUAL, tokens=1.8, memory=1.05, gap=Estimate("gap", 5.0, 2.0, 9.0))
    assert told.short == "leaks less at the same utility, at a price"
    assert told.sentence.endswith(
        "It costs 1.8 times the tokens and users with few samples 2.0 to 9.0 points of "
        "perplexity more than those with many."
    )


def test_a_gap_that_may_be_none_is_no_price():
    assert (
        judged(LESS, EQUAL, gap=Estimate("gap", 4.0, -1.0, 9.0)).short
        == "leaks less at the same utility"
    )


@pytest.mark.parametrize("trainings", [(1, 1), (2, 4), (4, 2)])
def test_too_few_trainings_get_numbers_and_no_verdict(trainings):
    change, ratio = Estimate("", -3.0), Estimate("", 1.01)
    told = judged(change, ratio, trainings=trainings)
    assert told.kind == "too few"
    assert told.short == "no verdict: too few trainings"
    assert "exposure -3.0 bits and test perplexity +1.0%" in told.sentence
    assert "A verdict needs 3 trainings of each, with different seeds" in told.sentence
    pair = (Difference(name="x", change=change, ratio=ratio, trainings=trainings), told)
    assert answer([pair], best=None, leaks=True)[0] == (
        "No defence can be judged: a verdict needs 3 trainings of each, with different seeds "
        "(train --seeds)."
    )


def test_canaries_at_the_ceiling_under_all_trainings_tell_nothing():
    still = Estimate("", 0.0, 0.0, 0.0)
    told = judged(still, EQUAL, stuck=(40, 40))
    assert told.kind == "unmeasured"
    assert "all 40 canaries are more probable than every reference" in told.sentence
    some = judged(SAME, EQUAL, stuck=(10, 40))
    assert some.kind == "none"
    assert "10 of the 40 canaries are more probable than every reference" in some.sentence


def test_words_unlearnt_are_told_from_order_unlearnt():
    assert "Other orders" in judged(LESS, EQUAL, order=Estimate("", 0.0, -1.0, 0.5)).sentence
    assert "Other orders" not in judged(LESS, EQUAL, order=Estimate("", -2.0, -3.0, -0.5)).sentence


def measured(name, change, ratio, **other):
    one = Difference(name=name, change=change, ratio=ratio, **other)
    return one, judge(one, tolerance=0.05)


@pytest.mark.parametrize(
    ("ratio", "use"),
    [(EQUAL, "at equal utility (test perplexity +1.0%)."),
     (LOWER, "and predicts better (test perplexity -10.0%).")],
)  # fmt: skip
def test_the_answer_begins_with_the_finding(ratio, use):
    told = answer([measured("gold", LESS, ratio, tokens=1.8)], best="gold", leaks=True)
    finding = f"gold lowers exposure by 3.0 bits (2.0 to 4.0) {use}"
    assert told == (finding, "It costs 1.8 times the tokens.")


def test_a_finding_from_canaries_at_the_ceiling_says_so():
    told = answer([measured("gold", LESS, EQUAL, stuck=(2, 20))], best="gold", leaks=True)
    assert "(up to the ceiling: 2 of the 20 canaries are more probable than" in told[0]


def test_without_a_defence_that_helps_none_is_advised():
    told = answer([measured("a", SAME, EQUAL), measured("b", LESS, HIGHER)], best=None, leaks=True)
    assert told[0] == "No defence is shown to lower exposure at equal utility."
    assert "b (+23.0%) leaks less, but at another test perplexity" in told[-1]
    assert "--stop-at-perplexity" in told[-1]


def test_where_nothing_leaks_nothing_can_be_seen_to_help():
    told = answer([measured("a", SAME, EQUAL)], best=None, leaks=False)
    assert told[0].startswith("No defence is needed on this evidence: the undefended")


def test_without_measures_there_is_no_answer():
    assert answer([measured("a", None, EQUAL)], best=None, leaks=None) == (
        "No defence can be judged: leakage and utility were not both measured.",
    )


def test_ties_and_guarantees_are_told():
    pairs = [
        measured("a", LESS, EQUAL),
        measured("b", LESS, EQUAL),
        measured("dp", LESS, HIGHER, guarantee="ε = 4.9"),
    ]
    told = " ".join(answer(pairs, best="a", ties=["b"], leaks=True))
    assert "Its leakage does not differ significantly from b." in told
    assert told.endswith("Only dp (ε = 4.9) comes with a guarantee.")
