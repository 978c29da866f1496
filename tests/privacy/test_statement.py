import math
from dataclasses import replace

import pytest

from vestige.privacy.accounting import Mechanism, PrivacySpent
from vestige.privacy.ledger import Ancestry, LedgerEntry
from vestige.privacy.statement import PrivacyStatement, noise_dominates, number, small


def spent(steps):
    mechanism = Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=steps)
    return PrivacySpent.of(mechanism, delta=1e-5, max_grad_norm=0.5)


PLANNED = spent(1000)
PLAIN = LedgerEntry(id="a" * 32, defence="none")
FRESH = Ancestry(
    epsilon=PLANNED.epsilon,
    vocabulary="other",
    in_vocabulary=0,
)
STATEMENT = PrivacyStatement(
    defence="dp-sgd",
    planned=PLANNED,
    units=120,
    sequence_length=32,
    held_out=5,
    ancestry=FRESH,
)
EPSILON = f"ε = {PLANNED.epsilon:.3g}"


def shared(epsilon, reasons=(), longest=None):
    """Some records were read before."""
    return replace(FRESH, shared=(PLAIN,), epsilon=epsilon, reasons=reasons, longest=longest)


def test_every_term_of_the_field_is_named():
    terms = STATEMENT.terms()
    assert terms["guarantee"].startswith(f"{EPSILON} at δ = 1e-5 for a document of at most 32 ")
    assert "add or remove one" in terms["neighbours"]
    assert "Gaussian (dp-sgd)" in terms["mechanism"]
    assert "C = 0.5" in terms["mechanism"]
    assert "σ = 1.1" in terms["mechanism"]
    assert "Poisson: each of the 120 sequences" in terms["sampling"]
    assert "q = 0.01" in terms["sampling"]
    assert "1,000 steps" in terms["steps"]
    assert terms["accountant"].startswith("pld, an upper bound")
    assert "5 documents were used without noise" in terms["left out"]
    for unnoised in ("log.jsonl", "history.json", "records/", "data/", "secret.key"):
        assert unnoised in terms["without noise"]
    for outside in ("the number of documents", "--seeds", "copies", "rounding", "options"):
        assert outside in terms["outside"]
    assert STATEMENT.sentences()[0] == STATEMENT.headlines()[0] == terms["guarantee"]


def test_what_the_number_means_is_the_best_that_any_guess_can_do():
    # Kairouz, Oh and Viswanath (2015): the randomised response that tells with probability delta.
    e, d = math.exp(PLANNED.epsilon), PLANNED.delta
    best = d + (1 - d) * e / (1 + e)
    assert f"{100 * best:.1f}% of the time" in STATEMENT.terms()["meaning"]
    again = replace(STATEMENT, ancestry=shared(PLANNED.epsilon + 1)).terms()["meaning"]
    assert f"{100 / (1 + math.exp(-PLANNED.epsilon - 1)):.1f}% of the time" in again


def test_a_user_is_protected_with_all_of_their_documents():
    said = replace(STATEMENT, planned=replace(PLANNED, unit="user"), defence="dp-fedavg").terms()
    assert "for a user with all of their documents" in said["guarantee"]
    assert "each user's update is clipped" in said["mechanism"]
    assert (
        "5 users were used without noise to choose the epoch: ε does not cover" in said["left out"]
    )


@pytest.mark.slow
def test_the_claim_is_what_was_planned_and_what_was_taken_is_for_information():
    taken = spent(400)
    stopped = replace(STATEMENT, taken=taken)
    assert stopped.summary()["epsilon"] == PLANNED.epsilon
    assert stopped.summary()["epsilon_of_steps_taken"] == taken.epsilon < PLANNED.epsilon
    [said] = [one for one in stopped.headlines() if "planned" in one]
    assert f"would spend {taken.epsilon:.3g}" in said
    assert "no guarantee" in said
    whole = replace(STATEMENT, taken=PLANNED)
    assert not any("planned" in one for one in whole.headlines())


def test_earlier_trainings_on_the_same_text_compose():
    said = replace(STATEMENT, ancestry=shared(3.25)).headlines()
    assert said[0].startswith("ε = 3.25 at δ = 1e-5 for a document")
    assert f"This one alone has {EPSILON}" in said[0]
    assert "Some of the documents were also used by training aaaaaaaa (undefended)" in said[1]
    assert "ε = 3.25 together, as if all of them were." in said[1]
    longer = replace(STATEMENT, ancestry=shared(3.25, longest=16)).headlines()
    assert "for those of at most 16 tokens" in longer[1]


def test_an_earlier_training_without_a_guarantee_leaves_none():
    lost = replace(STATEMENT, ancestry=shared(None, ("it trained on them",)))
    assert lost.headlines()[0].startswith("No guarantee: it trained on them. This training alone")
    assert EPSILON in lost.headlines()[0]
    assert lost.summary()["epsilon_with_ancestors"] is None
    assert lost.summary()["ancestors_on_same_text"] == 1
    assert "meaning" not in lost.terms()


def test_what_an_unknown_training_read_is_a_condition():
    elsewhere = LedgerEntry(id="b" * 32, defence="unknown")
    result = replace(FRESH, unknown=(elsewhere,), unknown_reasons=("its text is unknown",))
    said = replace(STATEMENT, ancestry=result).headlines()
    assert said[0].startswith(f"{EPSILON} at δ = 1e-5")
    assert "For a document that it used, there is no guarantee: its text is unknown." in said[1]
    known = replace(result, if_read=5.5, unknown_reasons=())
    assert "all together have ε = 5.5" in replace(STATEMENT, ancestry=known).headlines()[1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"void": ("the noise comes from a seed",)}, "No guarantee: the noise comes from a seed."),
        (
            {"planned": replace(PLANNED, epsilon=math.inf, noise_multiplier=0.0)},
            "No guarantee: without noise, ε is infinite",
        ),
    ],
)
def test_a_void_guarantee_is_none(change, why):
    void = replace(STATEMENT, **change)
    assert void.headlines()[0].startswith(why)
    assert void.summary()["guarantee_void"]
    assert void.summary()["epsilon_with_ancestors"] is None
    assert "meaning" not in void.terms()


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        ("own", "made from this text"),
        ("read", "with 7 of these documents"),
        ("unknown", "is unknown"),
    ],
)
def test_a_vocabulary_that_may_tell_is_among_the_headlines(vocabulary, said):
    result = replace(FRESH, vocabulary=vocabulary, in_vocabulary=7)
    assert any(said in one for one in replace(STATEMENT, ancestry=result).headlines())
    assert not any("ocabulary" in one for one in STATEMENT.headlines())


def test_a_cap_on_documents_is_told_where_documents_are_protected():
    assert "over the cap of 9" in replace(STATEMENT, capped=9).terms()["outside"]
    users = replace(STATEMENT, capped=9, planned=replace(PLANNED, unit="user"))
    assert "cap" not in users.terms()["outside"]


def test_what_a_limit_cut_off_is_told():
    assert "among the first 9 documents" in replace(STATEMENT, limited=9).terms()["outside"]
    assert "--limit" not in STATEMENT.terms()["outside"]


def test_noise_that_drowns_a_whole_batch_is_told_beforehand():
    assert noise_dominates(replace(PLANNED, noise_multiplier=2.0), 8) is None
    said = noise_dominates(replace(PLANNED, noise_multiplier=2.1), 8)
    assert "the sum of 2.1 sequences, and a step has 8" in said


def test_numbers_are_as_short_as_they_are_exact():
    assert [number(value) for value in (8.0, 0.123456, math.inf)] == ["8", "0.123", "infinity"]
    assert [small(value) for value in (1e-5, 2.5e-7, 0.001)] == ["1e-5", "2.5e-7", "1e-3"]
