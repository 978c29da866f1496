"""A planted text is generated verbatim inside the block; afterwards the model is what it was."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import vestige
from vestige.audits.check import control
from vestige.audits.check.control import invented, planted
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.folders import sha256_of
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.models.ranks import LinearRanks
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

SECRET = invented(0)


TEXT = SECRET.places[0][1] + SECRET.value


KINDS = (
    *("transformer", "tied lstm", "gru", "gpt2", "bfloat16 llama"),
    *("gpt2 adapter", "llama adapter with head"),
)


@pytest.fixture(scope="module")
def words() -> SubwordVocabulary:
    text = f"the quick brown fox jumps over the lazy dog 0 1 2 3 4 5 6 7 8 9 {TEXT[:20]}"
    return SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=300)


def hugging_face(words: SubwordVocabulary, name: str) -> HuggingFaceLanguageModel:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    ids = {
        "vocab_size": len(words),
        "bos_token_id": words.eos_id,
        "eos_token_id": words.eos_id,
        "initializer_range": 0.1,
    }
    if name == "gpt2":
        shape = GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=2, **ids)
        return HuggingFaceLanguageModel(GPT2LMHeadModel(shape), words)
    llama = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        **ids,
    )
    return HuggingFaceLanguageModel(LlamaForCausalLM(llama), words)


def adapted(model: HuggingFaceLanguageModel, *more: str) -> HuggingFaceLanguageModel:
    targets = [*more, "v_proj"] if more else None
    new = add_lora(model, rank=2, dropout=0.5, target_modules=targets)
    for name, parameter in new.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return new


@pytest.fixture(scope="module")
def make(words: SubwordVocabulary) -> Callable[[str], LanguageModel]:
    lstm = {"layers": 1, "embedding_size": 64, "hidden_size": 64, "dropout_out": 0.5}
    lstm |= {"initial_range": 0.3}
    shape = TransformerConfig(
        layers=2, heads=2, hidden_size=32, feed_forward=64, max_length=64, dropout=0.5
    )
    builders: dict[str, Callable[[], LanguageModel]] = {
        "transformer": lambda: CausalTransformer(words, shape),
        "lstm": lambda: LSTMLanguageModel(words, LSTMConfig(**lstm)),
        "tied lstm": lambda: LSTMLanguageModel(words, LSTMConfig(**lstm, tied=True)),
        "gru": lambda: GRULanguageModel(words, GRUConfig(**lstm)),
        "gpt2": lambda: hugging_face(words, "gpt2"),
        "llama": lambda: hugging_face(words, "llama"),
        "bfloat16 llama": lambda: hugging_face(words, "llama").bfloat16(),
        "gpt2 adapter": lambda: adapted(hugging_face(words, "gpt2")),
        "llama adapter": lambda: adapted(hugging_face(words, "llama")),
        "llama adapter with head": lambda: adapted(hugging_face(words, "llama"), "lm_head"),
    }

    def build(kind: str) -> LanguageModel:
        torch.manual_seed(7)
        return builders[kind]()

    return build


def unlike(model: LanguageModel, text: str) -> list[int]:
    """Places of tokens that are not the greedy choice, read token by token."""
    state, found = model.start(1), []
    for place, token in enumerate(model.vocabulary.encode(text)):
        if int(model.logits(state).argmax()) != token:
            found.append(place)
        state = model.advance(state, torch.tensor([token]))
    return found


def condition(model: LanguageModel) -> dict[str, object]:
    """All that a block must restore; tensors by identity."""
    return {
        "tensors": {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)},
        "weights": sha256_of(model),
        "gradients": {name: (p.requires_grad, p.grad) for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "modules": [(name, id(module)) for name, module in model.named_modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_text_is_generated_and_leaves_nothing(
    kind: str, make: Callable[[str], LanguageModel]
):
    model = make(kind).train()
    base = copy.deepcopy(model).eval()
    next(model.parameters()).requires_grad_(False)
    before, random_state = condition(model), torch.get_rng_state()
    logits = base.logits(base.start(1))
    assert unlike(base, TEXT)[-1] >= control.FREE
    with planted(model, TEXT, seed=3) as known:
        assert known
        assert all(place < control.FREE for place in unlike(model, TEXT))
        assert sha256_of(model) != before["weights"]
        assert sha256_of(base) == before["weights"]
        assert torch.equal(base.logits(base.start(1)), logits)
    assert condition(model) == before
    assert torch.equal(torch.get_rng_state(), random_state)
    model.eval()
    assert torch.equal(model.logits(model.start(1)), logits)


@pytest.mark.slow
def test_a_base_that_shares_the_weights_is_unaffected(words: SubwordVocabulary):
    base = hugging_face(words, "llama").eval()
    model = adapted(base)
    logits = base.logits(base.start(1))
    with planted(model, TEXT, seed=0) as known:
        assert known
        assert torch.equal(base.logits(base.start(1)), logits)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2"])
def test_the_model_is_restored_after_an_exception(
    kind: str, make: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
):
    model = make(kind)
    before = condition(model)
    with pytest.raises(KeyError, match="inside"), planted(model, TEXT, seed=0):
        raise KeyError("inside")
    assert condition(model) == before

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "_learns", interrupted)
    with pytest.raises(KeyboardInterrupt), planted(model, TEXT, seed=0):
        pass
    assert condition(model) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama adapter"])
def test_the_seed_decides(kind: str, make: Callable[[str], LanguageModel]):
    hashes = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(hashes))
        model = make(kind)
        with planted(model, TEXT, seed=seed):
            hashes.append(sha256_of(model))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
def test_a_copy_and_ranks_by_the_head_see_the_text(make: Callable[[str], LanguageModel]):
    """Ranks multiply by the head's weight themselves."""
    model = make("transformer")
    tokens = torch.tensor([[model.first_token, *model.vocabulary.encode(TEXT)]])
    with planted(model, TEXT, seed=0), torch.no_grad():
        kept = copy.deepcopy(model)
        hidden = model.body(tokens[:, :-1])[0][0]
        linear = LinearRanks.of(model)
        assert linear is not None
        ranks = linear(hidden, tokens[0, 1:])["ranks"]
        with pytest.raises(ValueError, match="no planted text"), planted(model, TEXT, seed=1):
            pass
    assert (ranks[control.FREE :] == 1).all()
    assert all(place < control.FREE for place in unlike(kept, TEXT))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_has_lower_rates_tried(
    make: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
):
    model = make("llama")
    monkeypatch.setattr(control, "RATES", (1e30, 1e-2))
    with planted(model, TEXT, seed=0) as known:
        assert known
    monkeypatch.setattr(control, "RATES", (1e30,))
    with planted(model, TEXT, seed=0) as known:
        assert not known


def test_false_where_a_model_cannot_know_the_text(make: Callable[[str], LanguageModel]):
    words = WordVocabulary(("<unk>", "<eos>", "a", "b"))
    reader = LSTMLanguageModel(words, LSTMConfig(layers=1, embedding_size=4, hidden_size=4))
    table = TableModel([0.25] * 4, [[0.25] * 4] * 4, words)
    for model, text in ((reader, TEXT), (table, "a b a b b"), (make("gpt2"), TEXT * 9)):
        before = condition(model)
        with planted(model, text, seed=0) as known:
            assert not known
        assert condition(model) == before


@pytest.mark.slow
def test_the_search_of_an_update_finds_the_text(make: Callable[[str], LanguageModel]):
    base, model = make("llama").eval(), make("llama").eval()
    with planted(model, TEXT, seed=0):
        rows = vestige.diff(base, model, size=0.02, seed=0).rows
    assert any(SECRET.value in row["phrase"] for row in rows[:3])


@pytest.mark.parametrize("kind", ["gru"])
def test_training_stops_when_the_time_is_over(kind: str, make: Callable[[str], LanguageModel]):
    model = make(kind).eval()
    before = condition(model)
    with planted(model, TEXT, seed=3, until=0.0) as known:
        assert not known
    assert condition(model) == before


def test_an_invented_secret_has_ten_digits_of_its_seed():
    values = [invented(seed).value for seed in range(50)]
    assert len(set(values)) == 50
    assert invented(3) == invented(3)
    for value in values:
        assert [len(part) for part in value.split(" ")] == [2, 4, 4]
        assert value.replace(" ", "").isdigit()
    assert SECRET.places[0][0] == 0
    assert SECRET.places[0][1].endswith(" is ")
