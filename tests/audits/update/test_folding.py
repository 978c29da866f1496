"""Near-copies fold into better phrases, and leave what those do not tell."""

from functools import partial

from vestige.audits.update.folding import fold
from vestige.audits.update.phrases import Text, uncovered
from vestige.audits.update.settings import Settings

GROWTH = Settings(token_penalty=0.5, split_threshold=2.0, min_tokens=3)


def phrase(*tokens: int, gain: float = 1.5) -> Text:
    """Every token after the first gains the same."""
    gains = (0.0, *[gain] * (len(tokens) - 1))
    return Text(tokens, gains, score=(gain - GROWTH.token_penalty) * (len(tokens) - 1))


def test_a_near_copy_leaves_what_no_better_phrase_tells():
    whole = phrase(1, 2, 3, 4, 5, 6, 7, 8)
    copy = phrase(20, 21, 22, 23, 4, 5, 6, 7, gain=1.3)  # two of its six trigrams: not half
    assert fold([whole, copy]) == [(whole, 0), (copy, 0)]
    copy = phrase(21, 22, 23, 4, 5, 6, 7, 8, gain=1.3)
    [(best, copies), (part, none)] = fold([whole, copy], rest=partial(uncovered, settings=GROWTH))
    assert (best, copies, none) == (whole, 1, 0)
    assert (part.phrase, part.score) == ((21, 22, 23), phrase(21, 22, 23, gain=1.3).score)
    assert fold([whole, copy]) == [(whole, 1)]


def test_the_rest_takes_its_own_place_by_score():
    whole, other = phrase(1, 2, 3, 4, 5, 6, 7, 8), phrase(30, 31, 32, 33, gain=1.2)
    copy = phrase(21, 22, 23, 4, 5, 6, 7, 8, gain=1.4)
    parts = fold([whole, copy, other], rest=partial(uncovered, settings=GROWTH))
    assert [leader.phrase for leader, _ in parts] == [
        whole.tokens, other.tokens, (21, 22, 23)
    ]  # fmt: skip
    assert [leader.score for leader, _ in parts] == sorted(
        (leader.score for leader, _ in parts), reverse=True
    )


def test_what_another_folding_has_told_is_no_leader_again():
    first, copy, other = phrase(1, 2, 3, 4), phrase(2, 3, 4, 5, gain=9.0), phrase(7, 8, 9)
    assert fold([copy, other], already=[first]) == [(other, 0)]


def test_uncovered_tokens_keep_the_token_before_them_as_context():
    told = [False, False, True, True, False, False, False, True]
    parts = list(uncovered(phrase(*range(8)), told, settings=GROWTH))
    [part] = parts
    assert (part.prefix, part.phrase, part.score) == ((0, 1, 2), (3, 4, 5, 6), 3.0)
    assert part.gains == (0.0, 0.0, 0.0, 0.0, 1.5, 1.5, 1.5)
    loose = Settings(token_penalty=0.5, min_tokens=2)
    parts = list(uncovered(phrase(*range(8)), told, settings=loose))
    assert [part.phrase for part in parts] == [(0, 1), (3, 4, 5, 6)]


def test_short_phrases_do_not_change_which_long_ones_lead():
    long, short = phrase(1, 2, 3, 4, gain=1.5), phrase(2, 3, 4, gain=9.0)
    assert fold([short, long]) == [(short, 1)]
    assert fold([short, long], long=4) == [(long, 1)]
    other = phrase(7, 8, gain=2.0)
    assert [leader for leader, _ in fold([other, short, long], long=4)] == [long, other]


def test_a_loop_in_a_sample_costs_as_much_as_one_that_grows():
    """In a loop of two the sixth token is the first to complete four that stand before."""
    tokens, growth = (
        (1, 7, 8, 7, 8, 7, 8),
        Settings(token_penalty=0.5, split_threshold=9.0, loop_penalty=1.25),
    )
    grown = Text(tokens, (0.0,) + (1.5,) * 6)
    (whole,) = grown.cut(growth)  # what grew has paid before
    assert whole.gains == (0.0,) + (1.5,) * 6
    (drawn,) = Text(tokens, grown.gains, log_ratios=(1.0,) * 6).cut(growth)
    assert drawn.gains == (0.0, 1.5, 1.5, 1.5, 1.5, 1.5)  # the last costs more than it gains
    assert drawn.score == 5 * 1.0
    code = (1, 0, 9, 0, 7, 0, 7, 0, 4)  # digits with spaces between them are no loop
    (drawn,) = Text(code, (0.0,) + (1.5,) * 8, log_ratios=(1.0,) * 8).cut(growth)
    assert drawn.tokens == code
