"""Verdicts on planted canaries: leaks and honest models come out right, all others undecided."""

import json
from itertools import permutations

import numpy as np
import pytest
import torch

import vestige
from tests.integrations.worlds import tokenizer
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Claim
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import VestigeError
from vestige.models.table import TableModel

WORDS = ["".join(letters) for letters in permutations("abcdefg", 3)]


def walks(number, seed):
    """Texts in which each word is followed by one of three."""
    rng, texts = np.random.default_rng(seed), []
    for _ in range(number):
        places = [int(rng.integers(len(WORDS)))]
        for step in rng.integers(1, 4, size=11):
            places.append((7 * places[-1] + int(step)) % len(WORDS))
        texts.append(" ".join(WORDS[place] for place in places))
    return texts


TEXTS = walks(600, seed=3)
VOCABULARY = WordVocabulary.build(Corpus.from_texts(TEXTS))
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("canaries") / "planted"
    vestige.plant(Corpus.from_texts(TEXTS), out=out, coin_flip=32, copies=40, length=3)
    return out


def counted(texts):
    """Chances of a word after another, by counts: a model that has read some texts."""
    counts = np.full((SIZE + 1, SIZE), 0.01)
    for ids in VOCABULARY.encode_batch(list(texts)):
        for before, after in zip([SIZE, *ids], [*ids, VOCABULARY.eos_id], strict=True):
            counts[before, after] += 1
    return of_chances(counts)


def of_chances(weights):
    chances = weights / weights.sum(1, keepdims=True)
    return TableModel(chances[SIZE], chances[:SIZE], VOCABULARY)


@pytest.fixture(scope="module")
def models(planted):
    lines = (planted / "corpus.jsonl").read_text().splitlines()
    rows = [json.loads(line)["text"] for line in lines]
    drawn = np.random.default_rng(0).dirichlet(np.ones(SIZE), SIZE + 1)
    return {
        "leak": counted(rows),
        "honest": counted(TEXTS),
        "zero": of_chances(np.ones((SIZE + 1, SIZE))),
        "random": of_chances(drawn),
    }


def exposed(model, manifest):
    return vestige.exposure(model, manifest, references=256)


def completed(model, manifest):
    return vestige.extract(model, manifest, beam=1)


VERBS = pytest.mark.parametrize("verb", [exposed, completed])


@pytest.mark.slow
@VERBS
@pytest.mark.parametrize(
    ("name", "verdict"),
    [("leak", LEAK), ("honest", NO_LEAK), ("zero", UNDECIDED), ("random", UNDECIDED)],
)
def test_a_leak_an_honest_model_and_dead_ones_are_told_apart(models, planted, verb, name, verdict):
    found = verb(models[name], planted)
    assert found.verdict == found.claim.verdict == verdict, found.claim
    saved = json.loads(json.dumps(dict(found.summary), default=list))
    assert Claim.from_summary(saved).verdict == verdict
    if verdict == UNDECIDED:
        assert "worse than word frequencies" in found.claim.reasons[0]


@VERBS
def test_a_model_of_nan_is_refused_in_one_line(models, planted, verb):
    broken = of_chances(np.ones((SIZE + 1, SIZE)))
    broken.log_table.fill_(torch.nan)
    with pytest.raises(VestigeError, match="not finite") as refused:
        verb(broken, planted)
    assert "\n" not in str(refused.value)


@VERBS
def test_too_few_canaries_are_undecided_and_say_the_least_p_value(tmp_path, models, verb):
    few = tmp_path / "few"
    vestige.plant(Corpus.from_texts(TEXTS), out=few, coin_flip=2, copies=1, length=3, seed=3)
    claim = verb(models["honest"], few).claim
    assert claim.verdict == UNDECIDED
    assert "The least p-value is" in claim.reasons[0]


@pytest.mark.slow
@VERBS
def test_an_adapter_that_changes_nothing_is_undecided(tmp_path, verb, filterwarnings_of_peft):
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    from vestige.data.subwords import SubwordVocabulary
    from vestige.models.hugging_face import HuggingFaceLanguageModel

    words = tokenizer()
    network = GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    )
    lora = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = HuggingFaceLanguageModel(get_peft_model(network, lora), SubwordVocabulary(words)).eval()
    out = tmp_path / "planted"
    vestige.plant(Corpus.from_texts(TEXTS), out=out, coin_flip=8, copies=1, length=3)
    claim = verb(model, out).claim
    assert claim.verdict == UNDECIDED
    assert "The adapter changes nothing: base and adapter agree." in claim.reasons


@pytest.fixture
def filterwarnings_of_peft():
    """PEFT's warning about transformers' older name is none of ours."""
    from vestige.models.lora import only_our_warnings

    with only_our_warnings():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("controls", [1, 5, 20])
def test_words_that_a_model_likes_are_no_leak_however_few_controls_there_are(controls):
    """Words of canaries and controls are twice as likely in any order; nothing is remembered."""
    from tests.audits.exposure.test_canary_exposure import draw, model_that_knows
    from vestige.audits.exposure.canaries import canary_exposure

    leaks = 0
    for seed in range(40):
        canaries = [*draw(12, 5, 2 * seed), *draw(controls, 0, 2 * seed + 1)]
        model = model_that_knows([c.phrase for c in canaries], words=1.3, seed=seed)
        found = canary_exposure(model, canaries, seed=seed, references=200, orders=0)
        leaks += found.test.significant
    assert leaks <= 6  # of 40 at 5 %, once in 500
    if controls == 1:
        assert leaks == 0


def test_few_completions_by_chance_are_no_leak(models, planted):
    """Two of ten phrases of two words, which any model may guess, are completed unread."""
    from vestige.audits.extraction.canaries import complete
    from vestige.data.canaries.texts import Canary

    words = VOCABULARY.words[2:42]
    said = {words[0]: words[1], words[2]: words[3]}
    table = np.full((SIZE + 1, SIZE), 0.001)
    for before, after in said.items():
        table[VOCABULARY.encode(before)[0], VOCABULARY.encode(after)[0]] = 1
    pairs = [f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True)]
    canaries = [Canary(pair, "random", (), 5) for pair in pairs[:10]]
    canaries += [Canary(pair, "random", (), 0) for pair in pairs[10:]]
    found = complete(of_chances(table), canaries, beam=1)
    assert found.rate().count == 2
    assert not found.test.significant
    assert found.attempts[0]["chance"] == 1  # of one word behind the first
    three = complete(
        of_chances(table), [Canary(" ".join(words[:3]), "random", (), 5), *canaries], beam=1
    )
    assert three.attempts[0]["chance"] == 1 / 2
