"""The small base, and fine-tunes kept after one, two and four epochs."""

import random
import shutil
from pathlib import Path

import torch

EPOCHS = (1, 2, 4)
LONGEST, BATCH, BLOCK = 200, 8, 128


def encoded(folder: Path, texts) -> list[list[int]]:
    """Ids of texts between the marks of a document, as Vestige asks of them."""
    from vestige.models.checkpoints import load_model

    model = load_model(str(folder), device="cpu")
    rows = model.vocabulary.encode_batch(list(texts))
    return [[model.first_token, *row[:LONGEST], model.vocabulary.eos_id] for row in rows]


def small_base(texts: list[str], folder: Path) -> Path:
    """A Llama of 11 M parameters over 4,096 word pieces, trained on texts for two epochs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from vestige.data.corpus import Corpus
    from vestige.data.subwords import SubwordVocabulary

    if folder.exists():
        return folder
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=4096)
    torch.manual_seed(0)
    eos = vocabulary.eos_id
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=320, intermediate_size=832, num_hidden_layers=8,
        num_attention_heads=5, num_key_value_heads=5, max_position_embeddings=512,
        tie_word_embeddings=True, bos_token_id=eos, eos_token_id=eos,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = [token for row in vocabulary.encode_batch(texts) for token in (*row, eos)]
    blocks = torch.tensor(ids[: len(ids) // BLOCK * BLOCK]).view(-1, BLOCK)
    order = torch.cat([torch.randperm(len(blocks)) for _ in range(2)]).split(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.5e-3, total_steps=len(order), pct_start=0.05
    )
    for step, chosen in enumerate(order):
        loss = one_step(model, optimizer, blocks[chosen], blocks[chosen])
        schedule.step()
        if step % 100 == 0:
            print(f"base: {step} of {len(order)}, {loss:.3f}", flush=True)
    return saved(model, folder, vocabulary.save, torch.bfloat16)


def one_step(model, optimizer, rows, labels) -> float:
    """A step in bfloat16 products over float32 weights."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(rows, labels=labels, attention_mask=(labels != -100).long()).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def fine_tunes(base: Path, texts, *, kind: str, rate: float, seed: int, out: Path) -> list[Path]:
    """Folders of a fine-tune after each of `EPOCHS`, of all weights or of an adapter."""
    from transformers import AutoModelForCausalLM

    folders = [out.with_name(f"{out.name}-{epochs}") for epochs in EPOCHS]
    if folders[-1].exists():
        return folders
    rows = encoded(base, texts)
    torch.manual_seed(seed)
    stored = AutoModelForCausalLM.from_pretrained(base).dtype
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if kind == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(
            model,
            LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        )
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate)
    chance = random.Random(seed)
    for epoch in range(1, EPOCHS[-1] + 1):
        order = chance.sample(range(len(rows)), len(rows))
        for start in range(0, len(order), BATCH):
            some = [rows[place] for place in order[start : start + BATCH]]
            width = max(map(len, some))
            labels = torch.full((len(some), width), -100)
            for row, ids in enumerate(some):
                labels[row, : len(ids)] = torch.tensor(ids)
            one_step(model, optimizer, labels.clamp(min=0), labels)
        if epoch in EPOCHS:
            folder = folders[EPOCHS.index(epoch)]
            saved(model, folder, lambda out: tokenizer_files(base, out), stored)
    return folders


def tokenizer_files(base: Path, out: Path) -> None:
    """The base's tokenizer beside other weights."""
    for path in base.iterdir():
        if "token" in path.name or path.name in {"vocab.json", "merges.txt"}:
            shutil.copy(path, out)


def saved(model, folder: Path, beside, dtype) -> Path:
    """A folder that appears whole, in the precision of its base."""
    part = folder.with_name(folder.name + ".partial")
    shutil.rmtree(part, ignore_errors=True)
    weights = {name: one.to(dtype) for name, one in model.state_dict().items()}
    model.config.dtype = dtype
    model.save_pretrained(part, state_dict=None if hasattr(model, "peft_config") else weights)
    beside(part)
    return part.rename(folder)
