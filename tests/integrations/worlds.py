"""Small trainings with Transformers: with canaries and a callback, and private ones."""

from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import vestige
from tests.audits.stories import sentences
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.integrations.leakage_callback import LeakageCallback
from vestige.integrations.private_trainer import PrivateTrainer

TEXTS = sentences(60, seed=0)
DATA = Dataset.from_dict({"text": TEXTS, "number": list(range(60))})
USERS = [f"user {row % 11}" for row in range(60)]
QUESTIONS = [[{"role": "user", "content": text}] for text in TEXTS[::2]]
ANSWERS = [[{"role": "assistant", "content": text}] for text in TEXTS[1::2]]
CHATS = [question + answer for question, answer in zip(QUESTIONS, ANSWERS, strict=True)]
LORA = {"r": 4, "target_modules": ["c_attn"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True}
QUIET = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "seed": 0, "save_strategy": "no"}


def tokenizer():
    tokenizer = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300).tokenizer
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encoded(tokenizer, texts, **columns):
    """The tokens of texts, each with an end."""
    ids = tokenizer([text + tokenizer.eos_token for text in texts])["input_ids"]
    return Dataset.from_dict({**columns, "input_ids": ids})


def gpt2(*, embedding=32, layers=1, dropout=0.1, **settings):
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "n_positions": 64, "n_embd": embedding, "n_layer": layers}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    return GPT2LMHeadModel(GPT2Config(**sizes, n_head=2, **rates, **settings))


def llama(**settings):
    """A Llama of 28,000 weights with tied embeddings."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    more = {"vocab_size": 300, "max_position_embeddings": 64, **settings}
    return LlamaForCausalLM(LlamaConfig(**(sizes | heads | more)))


def weights(model):
    return [p.detach().clone() for p in model.parameters() if p.requires_grad]


class Tracker(TrainerCallback):
    """Records what is logged."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **rest):
        self.logs.append(dict(logs))


class KillAfter(TrainerCallback):
    """Ends a training as `kill -9` does, after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **rest):
        if state.global_step == self.step:
            raise KeyboardInterrupt


class Steps(TrainerCallback):
    """Records weights and gradients before each step of the optimizer."""

    def __init__(self):
        self.gradients, self.before = [], []

    def on_step_begin(self, args, state, control, *, model, **rest):
        self.before.append(weights(model))

    def on_pre_optimizer_step(self, args, state, control, *, model, **rest):
        self.gradients.append([p.grad.clone() for p in model.parameters() if p.requires_grad])

    @property
    def first(self):
        """The first gradient, as one vector."""
        return torch.cat([gradient.flatten() for gradient in self.gradients[0]])


def trained(
    planted, tmp_path, *callbacks, steps=40, rows=8, resumed=None, prepare=None, **settings
):
    """A trainer after some steps on planted texts, and what a tracker received.

    `prepare` returns a model to use instead, and its optimizer.
    """
    words, tracker, model = tokenizer(), Tracker(), gpt2(embedding=64)
    model, optimizer = (model, None) if prepare is None else prepare(model)
    args = TrainingArguments(
        tmp_path / "trainer",
        max_steps=steps,
        per_device_train_batch_size=rows,
        **QUIET | {"learning_rate": 3e-3} | settings,
    )
    trainer = Trainer(
        model,
        args,
        processing_class=words,
        callbacks=[tracker],
        train_dataset=encoded(words, planted[0]["text"]),
        eval_dataset=encoded(words, sentences(60, seed=1)),
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
        optimizers=(optimizer, None),
    )
    for callback in callbacks:
        if isinstance(callback, LeakageCallback):
            callback.trainer = trainer
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=resumed)
    return trainer, tracker.logs


def seeded(**settings):
    """DP-SGD with seeded noise, so that two trainings can be compared."""
    return vestige.DPSGD(noise_seed_without_guarantee=3, **settings)


def private_trainer(
    directory: Path, privacy, *callbacks, rows=8, steps=6, lora=None, base=None, user_column=None,
    texts=(TEXTS, None), **settings,
):  # fmt: skip
    """A private trainer of an adapter on a small model, or with `lora=False` of the whole model.

    `texts`: those for training, and those for evaluation.
    """
    words = tokenizer()

    def data_set(texts):
        return encoded(words, texts, text=texts, user=(USERS * 2)[: len(texts)])

    args = TrainingArguments(
        directory,
        max_steps=steps,
        per_device_train_batch_size=rows,
        **QUIET | {"learning_rate": 1e-2, "logging_steps": 2} | settings,
    )
    return PrivateTrainer(
        base or gpt2(dropout=0.0),
        args,
        processing_class=words,
        callbacks=list(callbacks),
        train_dataset=data_set(texts[0]),
        eval_dataset=texts[1] and data_set(texts[1]),
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
        privacy=privacy,
        user_column=user_column,
        peft_config=None if lora is False else LoraConfig(**(lora or LORA)),
    )
