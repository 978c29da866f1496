"""The score of a canary is the loss of the trainer on its row, with padding and masks."""

import math
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from tests.integrations.worlds import CHATS, DATA, tokenizer
from vestige.data.canaries.texts import Manifest
from vestige.integrations.planting import plant
from vestige.integrations.trainer_audit import TrainerAudit

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ 'assistant\n' }}{% generation %}"
    "{{ m['content'] }}{% endgeneration %}{% else %}{{ m['role'] + '\n' + m['content'] }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
)


def world(side):
    """A Llama, whose attention knows distances and no places, and its tokenizer."""
    words = tokenizer()
    words.padding_side, words.chat_template = side, TEMPLATE
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes, **ends)).eval(), words


def nats(model, collate, row, longer, tmp_path):
    """The trainer's loss of a row beside a longer one that is masked, summed over its targets."""
    args = TrainingArguments(tmp_path, use_cpu=True, report_to=[])
    trainer = Trainer(model, args, data_collator=collate)
    batch = collate([row, longer])
    assert batch["attention_mask"][0].sum() < batch["attention_mask"].shape[1]  # it is padded
    batch["labels"][1] = -100
    with torch.no_grad():
        loss = trainer.compute_loss(model, batch)
    return loss.item() * (batch["labels"][0, 1:] != -100).sum().item()


def asked(out, model, words):
    """(canary, its log-perplexity in nats) as the callback asks."""
    own = SimpleNamespace(model=model, processing_class=words, args=None)
    found = TrainerAudit(own, out, references=100, seed=0).measure(None, last=False)[0]
    own = Manifest.load(out / "manifest.json").canaries
    pairs = zip(own, found.exposure.canaries, strict=True)
    return [(one, told["log_perplexity"] * math.log(2)) for one, told in pairs if one.planted]


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_score_of_a_text_is_the_loss_of_its_row(tmp_path, side):
    model, words = world(side)
    plant(DATA, out=tmp_path / "c", coin_flip=6, copies=2, length=3)
    collate = DataCollatorForLanguageModeling(words, mlm=False)
    for canary, score in asked(tmp_path / "c", model, words):
        ids = [words.bos_token_id or 0, *words(canary.phrase)["input_ids"]]
        # The first token of a text stands behind what every text begins with; it is no padding.
        row = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        longer = {"input_ids": ids * 3, "attention_mask": [1] * len(ids) * 3}
        assert nats(model, collate, row, longer, tmp_path) == pytest.approx(score, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_score_of_an_answer_is_the_loss_with_a_masked_prompt(tmp_path, side):
    """Losses of answers alone, by the mask of the template, as TRL's assistant_only_loss."""
    model, words = world(side)
    data = Dataset.from_dict({"messages": CHATS})
    planted = plant(data, out=tmp_path / "c", coin_flip=6, copies=2, length=3)
    sealed = Manifest.load(tmp_path / "c" / "manifest.json")
    collate = DataCollatorForSeq2Seq(words)
    for canary, score in asked(tmp_path / "c", model, words):
        place = sealed.positions[sealed.canaries.index(canary)][0]
        told = words.apply_chat_template(
            planted[place]["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        ids, answers = told["input_ids"], told["assistant_masks"]
        assert 0 < sum(answers) < len(ids)
        labels = [token if kept else -100 for token, kept in zip(ids, answers, strict=True)]
        row = {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids)}
        longer = {"input_ids": ids * 3, "labels": ids * 3, "attention_mask": [1] * len(ids) * 3}
        assert nats(model, collate, row, longer, tmp_path) == pytest.approx(score, rel=1e-4)
