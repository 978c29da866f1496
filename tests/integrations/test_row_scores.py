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
CANARIES = {"coin_flip": 6, "copies": 2, "length": 3}


@pytest.fixture(params=["left", "right"])
def model_and_tokenizer(request):
    """A Llama, which has relative positions, and a tokenizer that pads on one side."""
    words = tokenizer()
    words.padding_side, words.chat_template = request.param, TEMPLATE
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes, **ends)).eval(), words


def check_score(score, model, collator, ids, directory, labels=None):
    """Compare a score in bits with the trainer's loss of a row that is padded to a longer one."""
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in (ids, ids * 3)]
    if labels is not None:
        rows[0]["labels"], rows[1]["labels"] = labels, ids * 3
    trainer = Trainer(
        model,
        TrainingArguments(directory, use_cpu=True, report_to=[]),
        data_collator=collator,
    )
    batch = collator(rows)
    assert batch["attention_mask"][0].sum() < batch["attention_mask"].shape[1]
    batch["labels"][1] = -100
    with torch.no_grad():
        loss = trainer.compute_loss(model, batch)
    nats = loss.item() * (batch["labels"][0, 1:] != -100).sum().item()
    assert score * math.log(2) == pytest.approx(nats, rel=1e-4)


def scores_of(out, model, words):
    """(position in the manifest, log-perplexity) of each planted canary, as the callback scores."""
    trainer = SimpleNamespace(model=model, processing_class=words, args=None)
    audit = TrainerAudit(trainer, out, references=100, seed=0)
    canaries = audit.measure(None, last=False)[0].exposure.canaries
    planted = Manifest.load(out / "manifest.json").canaries
    return [
        (number, row["log_perplexity"])
        for number, (canary, row) in enumerate(zip(planted, canaries, strict=True))
        if canary.planted
    ]


def test_the_score_of_a_text_is_the_loss_of_its_row(tmp_path, model_and_tokenizer):
    model, words = model_and_tokenizer
    plant(DATA, out=tmp_path / "c", **CANARIES)
    canaries = Manifest.load(tmp_path / "c" / "manifest.json").canaries
    collator = DataCollatorForLanguageModeling(words, mlm=False)
    for number, score in scores_of(tmp_path / "c", model, words):
        ids = [words.bos_token_id or 0, *words(canaries[number].phrase)["input_ids"]]
        check_score(score, model, collator, ids, tmp_path)


@pytest.mark.slow
def test_the_score_of_an_answer_is_the_loss_with_a_masked_prompt(tmp_path, model_and_tokenizer):
    """With the mask of the template, as with TRL's assistant_only_loss."""
    model, words = model_and_tokenizer
    planted = plant(Dataset.from_dict({"messages": CHATS}), out=tmp_path / "c", **CANARIES)
    positions = Manifest.load(tmp_path / "c" / "manifest.json").positions
    collator = DataCollatorForSeq2Seq(words)
    for number, score in scores_of(tmp_path / "c", model, words):
        encoding = words.apply_chat_template(
            planted[positions[number][0]]["messages"],
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids, answers = encoding["input_ids"], encoding["assistant_masks"]
        assert 0 < sum(answers) < len(ids)
        labels = [token if answer else -100 for token, answer in zip(ids, answers, strict=True)]
        check_score(score, model, collator, ids, tmp_path, labels)
