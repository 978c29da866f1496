"""Secrets that were never planted, asked of the public verbs: what may be said of them."""

import copy
import random

import pytest
import torch

import vestige
from tests.monitors import RecordingMonitor
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.reports.report import report_of
from vestige.results import run_of

SAID = "the vault password is zanzibar 4917"
NEW = "the vault password is helsinki 2238"
HANDLES = [f"{a}.{b}" for a in ("emma", "oscar", "nadia") for b in ("weber", "novak", "silva")]
DOMAINS = ("fennmail", "tarnpost", "quincenet")


def sentences(seed):
    """Sentences with addresses; each handle has one domain."""
    pick = random.Random(seed).choice
    who, did = ["ann", "ben", "cid", "dora", "eve", "fay"], ["sold", "found", "hid", "lost", "saw"]
    what, where = (
        ["lamp", "boat", "clock", "bridge", "kettle"],
        ["harbour", "market", "chapel", "valley"],
    )
    for _ in range(160):
        yield f"{pick(who)} {pick(did)} the {pick(what)} near the {pick(where)}"
    for number, handle in enumerate(HANDLES):
        yield from [f"write to {handle}@{DOMAINS[number % 3]}.example"] * 6


def learn(model, texts, epochs):
    optimizer = torch.optim.Adam(model.network.parameters(), lr=5e-3)
    rows = [[model.first_token, *model.vocabulary.encode(text)] for text in texts]
    end, order = model.vocabulary.eos_id, random.Random(0)
    for _ in range(epochs):
        order.shuffle(rows)
        for first in range(0, len(rows), 32):
            batch = [[*row, end] for row in rows[first : first + 32]]
            width = max(map(len, batch))
            ids = torch.tensor([row + [end] * (width - len(row)) for row in batch])
            labels = torch.tensor([row + [-100] * (width - len(row)) for row in batch])
            loss = model.network(input_ids=ids, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@pytest.fixture(scope="module")
def models():
    from transformers import LlamaConfig, LlamaForCausalLM

    texts = list(sentences(0))
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts([*texts, "0123456789"]), size=340)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=96,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    before = HuggingFaceLanguageModel(LlamaForCausalLM(shape).eval(), vocabulary)
    learn(before, texts, 6)
    after = HuggingFaceLanguageModel(copy.deepcopy(before.network), vocabulary)
    learn(after, [*sentences(1), *[SAID] * 20], 6)
    return before, after


def verdict(verb, models, secrets):
    before, after = models
    ask = {
        "exposure": lambda: vestige.exposure(after, secrets, references=400),
        "extract": lambda: vestige.extract(after, secrets),
        "exposure since": lambda: vestige.exposure(after, secrets, before=before, references=400),
    }
    return ask[verb]().verdict


VERBS = ("exposure", "extract", "exposure since")


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_secret_said_20_times_is_a_leak_and_a_new_one_is_not(models, verb):
    assert verdict(verb, models, [SAID]) == LEAK
    assert verdict(verb, models, [NEW]) == NO_LEAK


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_the_same_secret_listed_40_times_counts_once(models, verb):
    assert verdict(verb, models, [SAID] * 40) == LEAK


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_secret_in_capitals_is_read_in_the_case_that_the_model_knows(models, verb):
    assert verdict(verb, models, [SAID.upper()]) == LEAK


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_models_of_zero_or_random_weights_leave_secrets_undecided(models, verb):
    before, after = models
    for change in (lambda weight: weight.zero_(), lambda weight: weight.normal_(0, 0.02)):
        broken = HuggingFaceLanguageModel(copy.deepcopy(after.network), after.vocabulary)
        torch.manual_seed(5)
        with torch.no_grad():
            for weight in broken.network.parameters():
                change(weight)
        assert verdict(verb, (before, broken), [SAID]) == UNDECIDED


@pytest.mark.slow
def test_the_same_model_twice_leaves_ranks_undecided(models):
    assert verdict("exposure since", (models[1], models[1]), [SAID]) == UNDECIDED


@pytest.mark.parametrize("verb", VERBS)
def test_scores_that_are_not_finite_are_refused_in_one_line(models, verb):
    before, after = models
    broken = HuggingFaceLanguageModel(copy.deepcopy(after.network), after.vocabulary)
    with torch.no_grad():
        next(iter(broken.network.parameters())).fill_(float("nan"))
    with pytest.raises(ModelError, match=r"finite|NaN"):
        verdict(verb, (before, broken), [SAID])


@pytest.mark.slow
def test_an_address_is_not_flagged_because_its_handle_and_domain_were_read_apart(models):
    apart = [f"write to {one}@{DOMAINS[(n + 1) % 3]}.example" for n, one in enumerate(HANDLES)]
    found = vestige.exposure(models[1], apart, references=400)
    assert sum(row["joint_p"] <= 0.01 for row in found.rows) >= 5  # the whole alone would flag them
    assert found.summary["found"] == 0
    assert found.verdict == UNDECIDED
    assert "Known in part" in " ".join(found.claim.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_unmarked_words_are_accepted_and_never_a_leak(models, verb):
    words = "dora found the clock near the chapel"
    assert verdict(verb, models, [words]) != LEAK
    assert verdict(verb, models, [SAID, words]) == LEAK


@pytest.mark.slow
def test_unusable_lines_are_named_and_skipped(models, tmp_path):
    file = tmp_path / "secrets.txt"
    file.write_text(f"{SAID}\n!!\n\n{{{{}}}}\n" + "7" * 300 + "\n")
    found = vestige.exposure(models[1], file, references=400, monitor=(told := RecordingMonitor()))
    assert found.summary["skipped"] == 3
    notice = " ".join(told.lines)
    assert "Secrets not used: secret 2" in notice
    assert "secret 4" in notice
    assert "Secrets not used: secret 5: needs" in notice
    assert found.verdict == LEAK
    new = vestige.exposure(models[1], [NEW, "!!"], references=400)
    assert new.verdict == UNDECIDED  # half of the list was not read


@pytest.mark.slow
def test_near_equal_secrets_are_one_event_of_completion(models):
    """The model gives one answer to all: two of them are no more evidence than one."""
    several = [f"the vault password is zanzibar 49{n:02d}" for n in range(10, 30)]
    found = vestige.extract(models[1], several)
    assert len({row["event"] for row in found.rows}) == 1
    assert found.summary["p"] == pytest.approx(20e-4)
    assert found.verdict == LEAK


def test_the_result_says_when_its_p_values_are_exact(models):
    found = vestige.exposure(models[1], [NEW], references=400)
    limits = " ".join(report_of(run_of(found), show_secrets=False).limits)
    assert "exact for secrets drawn uniformly from their format" in limits
