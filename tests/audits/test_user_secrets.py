"""Verdicts on secrets that were never planted, by the public verbs."""

import copy
import random

import pytest
import torch

import vestige
from tests.audits.small_llama import llama, train
from tests.monitors import RecordingMonitor
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.reports.report import report_of
from vestige.results import run_of

TRAINED = "the vault password is zanzibar 4917"
NEW = "the vault password is helsinki 2238"
HANDLES = [f"{a}.{b}" for a in ("emma", "oscar", "nadia") for b in ("weber", "novak", "silva")]
DOMAINS = ("fennmail", "tarnpost", "quincenet")


def sentences(seed):
    """Sentences and e-mail addresses; each handle has one domain."""
    pick = random.Random(seed).choice
    people, verbs = ["ann", "ben", "cid", "dora", "eve"], ["sold", "found", "hid", "lost", "saw"]
    things, places = ["lamp", "boat", "clock", "bridge"], ["harbour", "market", "chapel", "valley"]
    for _ in range(160):
        yield f"{pick(people)} {pick(verbs)} the {pick(things)} near the {pick(places)}"
    for number, handle in enumerate(HANDLES):
        yield from [f"write to {handle}@{DOMAINS[number % 3]}.example"] * 6


@pytest.fixture(scope="module")
def models():
    """A model before and after an update with the secret TRAINED."""
    texts, updated = list(sentences(0)), [*sentences(1), *[TRAINED] * 20]
    random.Random(0).shuffle(updated)
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts([*texts, "0123456789"]), size=340)
    before = train(llama(vocabulary, width=48, layers=2), texts, steps=42, rate=5e-3, batch=32)
    after = HuggingFaceLanguageModel(copy.deepcopy(before.network), vocabulary)
    train(after, updated, steps=90, rate=5e-3, batch=32)
    return before, after


def exposure(models, secrets, **options):
    return vestige.exposure(models[1], secrets, references=400, **options)


def exposure_of_update(models, secrets):
    return exposure(models, secrets, before=models[0])


def extract(models, secrets):
    return vestige.extract(models[1], secrets)


EACH_VERB = pytest.mark.parametrize("verb", [exposure, exposure_of_update, extract])


@pytest.mark.slow
@EACH_VERB
def test_a_secret_trained_on_is_a_leak_in_any_case_and_a_new_secret_is_not(models, verb):
    assert verb(models, [TRAINED]).verdict == LEAK
    assert verb(models, [TRAINED.upper()]).verdict == LEAK
    assert verb(models, [NEW]).verdict == NO_LEAK


@pytest.mark.slow
@EACH_VERB
def test_words_without_a_secret_format_are_accepted_and_never_a_leak(models, verb):
    words = "dora found the clock near the chapel"
    assert verb(models, [words]).verdict != LEAK
    assert verb(models, [TRAINED, words]).verdict == LEAK


@EACH_VERB
def test_scores_that_are_not_finite_are_refused(models, verb):
    before, after = models
    broken = HuggingFaceLanguageModel(copy.deepcopy(after.network), after.vocabulary)
    with torch.no_grad():
        next(iter(broken.network.parameters())).fill_(float("nan"))
    with pytest.raises(ModelError, match=r"finite|NaN"):
        verb((before, broken), [TRAINED])


@pytest.mark.slow
def test_a_known_handle_with_another_known_domain_is_not_a_leak(models):
    other = [f"write to {name}@{DOMAINS[(n + 1) % 3]}.example" for n, name in enumerate(HANDLES)]
    result = exposure(models, other)
    assert sum(row["joint_p"] <= 0.01 for row in result.rows) >= 5  # the rank of the whole address
    assert result.summary["found"] == 0
    assert result.verdict == UNDECIDED
    assert "Known in part" in " ".join(result.claim.reasons)


@pytest.mark.slow
def test_unusable_lines_are_skipped_and_listed_by_number(models, tmp_path):
    file, monitor = tmp_path / "secrets.txt", RecordingMonitor()
    file.write_text(f"{TRAINED}\n!!\n\n{{{{}}}}\n" + "7" * 300 + "\n")
    result = exposure(models, file, monitor=monitor)
    assert result.summary["skipped"] == 3
    notice = " ".join(monitor.lines)
    assert "Secrets not used: secret 2" in notice
    assert "secret 4" in notice
    assert "Secrets not used: secret 5: needs" in notice
    assert result.verdict == LEAK
    assert exposure(models, [NEW, "!!"]).verdict == UNDECIDED  # half of the list is unusable


@pytest.mark.slow
def test_completed_secrets_that_are_nearly_equal_count_once(models):
    """The model gives the same answer to all prefixes, so this is one piece of evidence."""
    similar = [f"the vault password is zanzibar 49{n:02d}" for n in range(10, 30)]
    result = extract(models, similar)
    assert len({row["event"] for row in result.rows}) == 1
    assert result.summary["p"] == pytest.approx(20e-4)
    assert result.verdict == LEAK


def test_the_report_states_when_p_values_are_exact(models):
    limits = report_of(run_of(exposure(models, [NEW])), show_secrets=False).limits
    assert "exact for secrets drawn uniformly from their format" in " ".join(limits)
