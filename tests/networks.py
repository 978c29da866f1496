"""Untrained Hugging Face networks with a few thousand weights."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch


def write_gpt(
    folder: Path,
    texts: Iterable[str],
    *,
    tokens: int = 300,
    positions: int = 64,
    width: int = 8,
    sure: float = 1.0,
    **saving: Any,
) -> Path:
    """A GPT-2 with subwords of some texts. `sure` scales its logits; `saving`: save options."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from vestige.data.corpus import Corpus
    from vestige.data.subwords import SubwordVocabulary

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(list(texts)), size=tokens)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=positions, n_embd=width, n_layer=1, n_head=1,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    network = GPT2LMHeadModel(config)
    with torch.no_grad():
        network.transformer.ln_f.weight.mul_(sure)
    network.save_pretrained(folder, **saving)
    vocabulary.save(folder)
    return folder


def write_bert(folder: Path, words: Sequence[str], *, width: int = 8) -> Path:
    """A BERT with a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    ids = {word: id for id, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    inner = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(ids), hidden_size=width, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=width, max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder
