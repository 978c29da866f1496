"""Models whose documents begin with a token of their own, as Llama's and Gemma's do."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from vestige.audits.update.pair import Pair, Reader
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel

WORDS = [f"w{i}" for i in range(30)]
SECRET = (9, 20, 13, 27, 16)


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return SubwordVocabulary(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
        )
    )


def llama(vocabulary: SubwordVocabulary, texts: list[tuple[int, ...]]) -> HuggingFaceLanguageModel:
    """A small Llama that has read texts, `<s>` before and `</s>` after each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    batch = torch.tensor([(1, *text, 2) for text in texts])
    optimizer = torch.optim.Adam(network.parameters(), 0.03)
    for _ in range(60):
        logits = network(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return HuggingFaceLanguageModel(network, vocabulary).eval()


@pytest.fixture(scope="module")
def pair(vocabulary: SubwordVocabulary) -> tuple[HuggingFaceLanguageModel, ...]:
    torch.manual_seed(1)
    others = [tuple(row) for row in torch.randint(3, 33, (24, len(SECRET))).tolist()]
    return llama(vocabulary, others), llama(vocabulary, [*others, *[SECRET] * 12])


def test_only_a_token_that_the_tokenizer_puts_there_begins_documents(vocabulary):
    assert (vocabulary.bos_id, vocabulary.eos_id) == (1, 2)
    plain = vocabulary.tokenizer.__class__(
        tokenizer_object=vocabulary.tokenizer.backend_tokenizer, eos_token="</s>", bos_token="</s>"
    )
    assert SubwordVocabulary(plain).bos_id is None


@torch.no_grad()
def test_a_text_is_entered_behind_its_beginning(pair):
    model = pair[1]
    contexts = torch.tensor([5, 9, 1, 30])
    asked = Reader(model).enter(contexts[:, None]).logits().log_softmax(-1)
    expected = model.network(input_ids=torch.stack([torch.ones_like(contexts), contexts], 1))
    torch.testing.assert_close(asked, expected.logits[:, -1].log_softmax(-1), rtol=1e-4, atol=1e-5)
    begun = Reader(model).enter(torch.ones(3, 1, dtype=torch.int64)).logits().log_softmax(-1)
    alone = model.network(input_ids=torch.ones(3, 1, dtype=torch.int64)).logits[:, -1]
    torch.testing.assert_close(begun, alone.log_softmax(-1), rtol=1e-4, atol=1e-5)


def test_a_secret_is_read_from_the_beginning_of_its_document(pair):
    settings = Settings(
        sampling=None, pairs=1, openings=10, token_penalty=0.3, max_tokens=1 + len(SECRET)
    )
    found = search(Pair.of(*pair, TokenScore("smoothed")), settings)
    phrases = [phrase.phrase for phrase, _ in found.phrases]
    assert (1, *SECRET) in phrases
    for tokens in phrases:
        assert 1 not in tokens[1:]
        assert 2 not in tokens[1:]
