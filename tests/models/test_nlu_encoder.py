"""Encoders with heads: what they read is what transformers reads, and what is saved comes back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from vestige.data.utterances import IGNORED, Labels, Utterance, Utterances
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.models.checkpoints import load_intent_slot, load_model, save_model
from vestige.models.folders import fingerprint
from vestige.models.nlu_encoder import IntentSlotEncoder, new_encoder
from vestige.models.white_box import WhiteBox
from vestige.training.config import TrainingConfig
from vestige.training.loop import learn
from vestige.training.utterances import UtteranceTask, evaluate_utterances

CITIES = ("york", "paris", "toledo", "lisbon", "lima", "cairo")
SAID = Utterances.of(
    [
        *(Utterance(("fly", "to", city), ("O", "O", "B-city"), "Fly") for city in CITIES),
        *(
            Utterance(("how", "is", city, "now"), ("O", "O", "B-city", "O"), "Ask")
            for city in CITIES
        ),
    ]
)
TEXTS = [utterance.text for utterance in SAID] * 3


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders as users have them: saved from masked language models, with their tokenizers."""
    from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

    place = tmp_path_factory.mktemp("encoders")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 14,
        "initializer_range": 0.2,
    }
    pieces = {"bert": word_piece(), "roberta": byte_level()}
    bert = BertConfig(vocab_size=len(pieces["bert"]) + 3, **sizes)
    roberta = RobertaConfig(vocab_size=len(pieces["roberta"]), pad_token_id=1, **sizes)
    networks = {"bert": BertForMaskedLM(bert), "roberta": RobertaForMaskedLM(roberta)}
    for name, network in networks.items():
        network.save_pretrained(place / name)
        pieces[name].save_pretrained(place / name)
    return {name: place / name for name in networks}


def word_piece() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
    )


def byte_level() -> Any:
    from tokenizers import ByteLevelBPETokenizer, processors
    from transformers import PreTrainedTokenizerFast

    inner = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    inner.train_from_iterator(TEXTS, vocab_size=280, special_tokens=special, show_progress=False)
    inner._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner._tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


@pytest.fixture(params=["bert", "roberta"])
def folder(request: pytest.FixtureRequest, encoders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(encoders[request.param], tmp_path / request.param))


@pytest.fixture
def model(folder: Path) -> IntentSlotEncoder:
    return new_encoder(folder, *Labels.of(SAID), seed=0)


@torch.no_grad()
def test_the_encoder_reads_what_transformers_reads(model: IntentSlotEncoder, folder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(folder).eval()
    hidden = encoder(**tokenizer("how is lima now", return_tensors="pt")).last_hidden_state
    tokens, _, _ = model.encode(SAID.take([10])).rows(np.arange(1))
    intents, tags = model.scores(model.embed(torch.from_numpy(tokens)))
    torch.testing.assert_close(intents, model.intent_head(hidden[:, 0]))
    torch.testing.assert_close(tags, model.tag_head(hidden[:, 1:-1]))


def test_tags_stand_at_the_first_piece_of_each_word(model: IntentSlotEncoder) -> None:
    said = Utterance(("fly", "to", "parisyork", "now"), ("O", "O", "B-city", "I-city"), "Fly")
    data = model.encode(Utterances.of([said]))
    pieces = model.read(said.tokens)
    assert len(pieces[2]) > 1
    assert data.tokens.tolist() == [token for word in pieces for token in word]
    firsts = data.tags != IGNORED
    assert [model.tags[tag] for tag in data.tags[firsts]] == list(said.tags)
    assert firsts.tolist() == [place == 0 for word in pieces for place in range(len(word))]


def test_a_word_carries_its_blank_where_the_tokenizer_says_so(encoders: dict[str, Path]) -> None:
    roberta = new_encoder(encoders["roberta"], ["Fly"], ["O"], seed=0)
    assert roberta.read(["york"]) != roberta.read(["to", "york"])[1:]
    decoded = roberta.vocabulary.decode(roberta.read(["to", "york"])[1])
    assert decoded == " york"
    bert = new_encoder(encoders["bert"], ["Fly"], ["O"], seed=0)
    assert bert.read(["york"]) == bert.read(["to", "york"])[1:]


def test_a_word_that_cannot_be_read_keeps_its_place(encoders: dict[str, Path]) -> None:
    bert = new_encoder(encoders["bert"], ["Fly"], ["O"], seed=0)
    gone, strange = "\u200b", "\u4f60"
    assert bert.read(["to", gone, strange, "york"])[1:3] == [(), ()]
    said = Utterance(("to", gone, strange, "york"), ("O",) * 4, "Fly")
    data = bert.encode(Utterances.of([said]))
    assert (data.tags != IGNORED).sum() == 4
    assert (data.tokens == bert.vocabulary.unk_id).sum() == 2


def test_a_loss_counts_the_words_and_not_their_pieces(model: IntentSlotEncoder) -> None:
    tokens = torch.randint(5, 50, (3, 4))
    intents, tags = torch.tensor([0, 1, 1]), torch.tensor([[0, IGNORED, 1, 2]] * 3)
    logits, tagged = model.scores(model.embed(tokens))
    found = model(tokens, intents, tags)
    assert isinstance(model, WhiteBox)
    for row in range(3):
        cost = -sum(tagged[row].log_softmax(-1)[n, tags[row, n]] for n in (0, 2, 3))
        torch.testing.assert_close(found.tags[row], cost)
        torch.testing.assert_close(found.intent[row], -logits[row].log_softmax(-1)[intents[row]])


def test_the_loss_has_a_gradient_by_the_vectors(model: IntentSlotEncoder) -> None:
    model = model.double()
    vectors = model.embed(torch.randint(5, 50, (2, 3))).detach().requires_grad_()
    intents, tags = torch.tensor([0, 1]), torch.tensor([[0, 1, 2]] * 2)
    assert torch.autograd.gradcheck(lambda v: model.losses(v, intents, tags).joint, vectors)


@pytest.mark.filterwarnings("error")
def test_training_reaches_the_right_answers(model: IntentSlotEncoder, tmp_path: Path) -> None:
    config = TrainingConfig(seed=0, epochs=25, batch_size=4, learning_rate=5e-3)
    lesson = UtteranceTask(model.encode(SAID), SAID)
    learn(model, lesson, config=config, directory=tmp_path / "run")
    scores = evaluate_utterances(model, SAID)
    assert scores.exact_match == 1
    assert scores.slot_f1 == 1
    again = load_intent_slot(tmp_path / "run", device="cpu")
    assert evaluate_utterances(again, SAID) == scores
    assert not again.training


def test_a_saved_encoder_comes_back_bit_for_bit(model: IntentSlotEncoder, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    again = load_intent_slot(tmp_path / "model", device="cpu")
    assert isinstance(again, IntentSlotEncoder)
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (again.intents, again.tags) == (model.intents, model.tags)
    assert again.dropout.p == model.dropout.p
    assert again.longest == model.longest
    assert again.vocabulary.fingerprint() == model.vocabulary.fingerprint()
    assert not list((tmp_path / "model").glob("*.bin"))


def test_the_fingerprint_covers_the_heads(model: IntentSlotEncoder, tmp_path: Path) -> None:
    save_model(model, tmp_path / "a")
    with torch.no_grad():
        model.tag_head.bias[0] += 1
    save_model(model, tmp_path / "b")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")


def test_the_seed_decides_the_heads(folder: Path) -> None:
    state = torch.random.get_rng_state()
    one, same, other = (new_encoder(folder, ["a"], ["O"], seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.intent_head.weight, same.intent_head.weight)
    assert not torch.equal(one.intent_head.weight, other.intent_head.weight)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_longer_utterances_than_the_encoder_reads_are_refused(model: IntentSlotEncoder) -> None:
    said = Utterance(("york",) * 13, ("O",) * 13, "Fly")
    with pytest.raises(DataError, match=r"utterance 2 has .* pieces; the encoder reads at most"):
        model.encode(Utterances.of([next(iter(SAID)), said]))
    longest = torch.full((1, model.longest), 6)
    model.predict(longest)
    with pytest.raises(ValueError, match="at most"):
        model.predict(torch.cat([longest, longest], 1))


def test_a_causal_model_is_refused(folders: dict[str, Path]) -> None:
    for name in folders:
        with pytest.raises(ModelError, match="is not an encoder") as caught:
            new_encoder(folders[name], ["a"], ["O"], seed=0)
        assert str(folders[name]) in caught.value.problem
        assert "encoder" in caught.value.remedy


def test_an_encoder_is_no_language_model(model: IntentSlotEncoder, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    with pytest.raises(AccessDenied, match="predicts no next words"):
        load_model(tmp_path / "model")


def test_a_language_model_has_no_intents(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a language model and has no intents"):
        load_intent_slot(folders["gpt2"])
    with pytest.raises(ModelError, match="does not exist"):
        load_intent_slot(tmp_path / "nothing")


def change(folder: Path, **changes: Any) -> None:
    file = folder / "intent_slot.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def without_intent_bias(folder: Path) -> None:
    heads = load_file(folder / "heads.safetensors")
    del heads["intent_head.bias"]
    save_file(heads, folder / "heads.safetensors")


BREAKAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no heads": (lambda d: (d / "heads.safetensors").unlink(), "heads.safetensors"),
    "heads cut short": (lambda d: (d / "heads.safetensors").write_bytes(b"ab"), "does not fit"),
    "a head's part missing": (without_intent_bias, "(?s)does not fit.*bias"),
    "another number of labels": (lambda d: change(d, intents=["Fly"]), "does not fit"),
    "a label twice": (lambda d: change(d, tags=["O", "O", "B-city"]), "all different"),
    "labels are no list": (lambda d: change(d, tags=3), r"intent_slot\.json has unexpected"),
    "no JSON": (lambda d: (d / "intent_slot.json").write_text("{"), r"intent_slot\.json is not"),
    "another format": (lambda d: change(d, format=2), "format 2"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "model.safetensors|missing"),
    "no tokenizer": (lambda d: (d / "tokenizer.json").unlink(), "tokenizer"),
}


@pytest.mark.parametrize("name", BREAKAGES)
@pytest.mark.filterwarnings("ignore")  # whatever transformers says before it gives up
def test_a_broken_folder_is_refused(encoders: dict[str, Path], tmp_path: Path, name: str) -> None:
    breakage, says = BREAKAGES[name]
    saved = tmp_path / "model"
    save_model(new_encoder(encoders["bert"], *Labels.of(SAID), seed=0), saved)
    breakage(saved)
    with pytest.raises(ModelError, match=says) as caught:
        load_intent_slot(saved)
    assert str(saved) in caught.value.problem
    assert caught.value.remedy


@pytest.mark.filterwarnings("ignore")
def test_a_tokenizer_larger_than_the_encoder_is_refused(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    mixed = Path(shutil.copytree(encoders["bert"], tmp_path / "mixed"))
    for file in encoders["roberta"].glob("tokenizer*"):
        shutil.copy(file, mixed)
    with pytest.raises(ModelError, match="the encoder knows"):
        new_encoder(mixed, ["a"], ["O"], seed=0)


def test_other_kinds_of_encoders_can_be_asked(encoders: dict[str, Path], tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel, ModernBertConfig, ModernBertModel

    tokenizer = word_piece()
    distil = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, hidden_dim=24, n_layers=1, n_heads=2
    )
    modern = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
    )
    for name, network in (("d", DistilBertModel(distil)), ("m", ModernBertModel(modern))):
        network.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        model = new_encoder(tmp_path / name, *Labels.of(SAID), seed=0)
        data = model.encode(SAID.take([0]))
        tokens, tags, intents = (torch.from_numpy(part) for part in data.rows(np.arange(1)))
        vectors = model.embed(tokens).detach().requires_grad_()
        model.losses(vectors, intents, tags).joint.sum().backward()
        assert vectors.grad is not None
        assert vectors.grad.abs().sum() > 0
