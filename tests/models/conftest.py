"""One small random model of every kind, made once; tests that change one get a copy."""

import copy
import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.utterances import Labels, Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.folders import sha256
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.reading import pack
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

HUGGING_FACE = ("gpt2", "llama")
NETWORKS = ("lstm", "tied lstm", "gru", "transformer", *HUGGING_FACE)
LANGUAGE_MODELS = (*NETWORKS, "table", "gpt2 adapter", "llama adapter")

SOURCES = WordVocabulary(("<unk>", "<eos>", *(f"s{i}" for i in range(9))))
TARGETS = WordVocabulary(("<unk>", "<eos>", *(f"t{i}" for i in range(18))))
TRANSLATORS = ("lstm+attention", "lstm", "gru+attention", "gru")
DECODERS = tuple(f"decoder {kind}" for kind in TRANSLATORS)
"""Translators with a source: they are language models, too."""

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
INDEX = "model.safetensors.index.json"

CITIES = ("york", "paris", "toledo", "lisbon", "lima", "cairo")
FLY = [Utterance(("fly", "to", city), ("O", "O", "B-city"), "Fly") for city in CITIES]
ASK = [Utterance(("how", "is", city, "now"), ("O", "O", "B-city", "O"), "Ask") for city in CITIES]
UTTERANCES = Utterances.of(FLY + ASK)
INTENT_SLOT = IntentSlotConfig(
    intents=("Ask", "Tell"), tags=("O", "B-pin", "I-pin"), embedding_size=5, hidden_size=4
)


def translator(kind="lstm+attention", **shape):
    """A random encoder-decoder."""
    cell, _, attention = kind.partition("+")
    sizes = {"embedding_size": 5, "hidden_size": 7, "dropout_in": 0.3, "initial_range": 0.6}
    config = Seq2SeqConfig(cell=cell, attention=bool(attention), **sizes | shape)
    torch.manual_seed(1)
    return Seq2SeqModel(SOURCES, TARGETS, config).eval()


def intent_slot_model(words, config=INTENT_SLOT):
    torch.manual_seed(3)
    model = IntentSlotModel(words, config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model.eval()


def random_texts(lengths, *, size=20, seed=0):
    """Texts of random ids from 2, each followed by the end of text (id 1)."""
    generator = np.random.default_rng(seed)
    return pack([np.append(generator.integers(2, size, n), 1) for n in lengths])


def edit_json(file, **changes):
    """Change some fields of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def reseal(folder, **changes):
    """Change model.json and update its hash of the weights."""
    edit_json(folder / "model.json", sha256=sha256([folder / "model.safetensors"]), **changes)


def shard(folder, *names):
    """Split the weights into files of these names, listed in an index."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    parts = {name: sorted(weights)[n :: len(names)] for n, name in enumerate(names)}
    for name, keys in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file({key: weights[key] for key in keys}, folder / name, metadata={"format": "pt"})
    weight_map = {key: name for name, keys in parts.items() for key in keys}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    file.unlink()


@pytest.fixture(scope="session")
def words():
    return WordVocabulary(("<unk>", "<eos>", *(f"word{i}" for i in range(18))))


@pytest.fixture(scope="session")
def subwords():
    text = "the quick brown fox jumps over the lazy dog and the cat sat on the mat"
    return SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=280)


@pytest.fixture(scope="session")
def folders(subwords, tmp_path_factory):
    """Model folders that transformers wrote."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    common = {"bos_token_id": subwords.eos_id, "eos_token_id": subwords.eos_id}
    common["initializer_range"] = 0.3
    sizes = {"n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2}
    gpt2 = GPT2Config(vocab_size=len(subwords) + 8, **sizes, **common)  # padded, as real ones are
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    llama = LlamaConfig(vocab_size=len(subwords), **SIZES, **heads, **common)
    directory = tmp_path_factory.mktemp("hugging_face")
    torch.manual_seed(0)
    for name, network in (("gpt2", GPT2LMHeadModel(gpt2)), ("llama", LlamaForCausalLM(llama))):
        network.save_pretrained(directory / name)
        subwords.save(directory / name)
    return {name: directory / name for name in HUGGING_FACE}


@pytest.fixture
def folder(folders, tmp_path):
    """A copy of the GPT-2 folder, to change or break."""
    return Path(shutil.copytree(folders["gpt2"], tmp_path / "gpt2"))


@pytest.fixture(scope="session")
def shared(words, folders):
    """A model of each kind, made on first use. Tests must not change them."""
    from vestige.models.lora import add_lora
    from vestige.models.pretrained import load

    def adapter(name):
        model = add_lora(load(folders[name]), rank=2)
        for key, parameter in model.named_parameters():
            if "lora_B" in key:  # it starts from zero
                torch.nn.init.normal_(parameter, std=0.5)
        return model

    recurrent = {"embedding_size": 8, "hidden_size": 12, "dropout_in": 0.5, "dropout_out": 0.5}
    lstm, gru = (kind(initial_range=0.5, **recurrent) for kind in (LSTMConfig, GRUConfig))
    tied = LSTMConfig(layers=1, embedding_size=8, hidden_size=8, tied=True, initial_range=0.5)
    sizes = {"layers": 2, "heads": 2, "hidden_size": 8, "feed_forward": 16, "max_length": 12}
    transformer = TransformerConfig(**sizes, dropout=0.5)
    rows = torch.rand(21, 20, generator=torch.Generator().manual_seed(7)).softmax(-1)
    build = {
        "lstm": lambda: LSTMLanguageModel(words, lstm),
        "tied lstm": lambda: LSTMLanguageModel(words, tied),
        "gru": lambda: GRULanguageModel(words, gru),
        "transformer": lambda: CausalTransformer(words, transformer),
        "table": lambda: TableModel(rows[0], rows[1:], words),
        **{name: lambda name=name: load(folders[name]) for name in HUGGING_FACE},
        **{f"{name} adapter": lambda name=name: adapter(name) for name in HUGGING_FACE},
        **{name: lambda name=name: translator(name[8:]).given("s1 s2") for name in DECODERS},
    }

    class Models(dict):
        def __missing__(self, name):
            torch.manual_seed(7)
            model = build[name]()
            self[name] = model if name in DECODERS else model.eval()
            return self[name]

    return Models()


@pytest.fixture(scope="session")
def make(shared):
    """Functions that copy each language model, so that a test can change it."""
    return {name: lambda name=name: copy.deepcopy(shared[name]) for name in LANGUAGE_MODELS}


@pytest.fixture(scope="session")
def foreign(make, subwords):
    """Hugging Face models, also with a sliding window or a head that is more than a product."""
    from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

    def build(name):
        if name in make:
            return make[name]()
        torch.manual_seed(0)
        sizes = SIZES | {"vocab_size": len(subwords), "initializer_range": 0.3}
        sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 3}
        if name == "mistral":
            network = MistralForCausalLM(MistralConfig(**sizes))
        else:
            capped = Gemma2Config(**sizes, head_dim=8, final_logit_softcapping=2.0)
            network = Gemma2ForCausalLM(capped)
        return HuggingFaceLanguageModel(network.eval(), subwords)

    return build


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """Folders of masked language models with their tokenizers."""
    from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

    sizes = SIZES | {"num_attention_heads": 2, "max_position_embeddings": 14}
    sizes["initializer_range"] = 0.2
    pieces = {"bert": word_piece(), "roberta": byte_level()}
    bert = BertConfig(vocab_size=len(pieces["bert"]) + 3, **sizes)
    roberta = RobertaConfig(vocab_size=len(pieces["roberta"]), pad_token_id=1, **sizes)
    directory = tmp_path_factory.mktemp("encoders")
    torch.manual_seed(0)
    networks = {"bert": BertForMaskedLM(bert), "roberta": RobertaForMaskedLM(roberta)}
    for name, network in networks.items():
        network.save_pretrained(directory / name)
        pieces[name].save_pretrained(directory / name)
    return {name: directory / name for name in networks}


TEXTS = [utterance.text for utterance in UTTERANCES] * 3


def word_piece():
    """A tokenizer like that of BERT."""
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
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def byte_level():
    """A tokenizer like that of RoBERTa."""
    from tokenizers import ByteLevelBPETokenizer, processors
    from transformers import PreTrainedTokenizerFast

    inner = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    inner.train_from_iterator(TEXTS, vocab_size=280, special_tokens=special, show_progress=False)
    inner._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    names |= {"unk_token": "<unk>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner._tokenizer, **names)


@pytest.fixture(scope="session")
def new_bert(encoders):
    """An encoder with heads for the labels of these utterances."""
    from vestige.models.nlu_encoder import new_encoder

    return new_encoder(encoders["bert"], *Labels.of(UTTERANCES), seed=0)


@pytest.fixture
def memory_limit():
    """Makes allocations that do not fit fail, before the machine runs out of memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**36, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def open_endpoint(tmp_path, monkeypatch):
    """Opens endpoints that cache in one folder, with the key in the environment."""
    from tests.models.served import KEY, EndpointOpener

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with (endpoints := EndpointOpener(tmp_path)).stack:
        yield endpoints
