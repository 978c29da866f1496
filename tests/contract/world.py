"""Small models with known training texts; each is made when it is first used.

base       trained on public texts
tuned      base, fine-tuned on `members` and 12 copies of a secret
other      base, fine-tuned on other texts
update     base, briefly fine-tuned on other texts and the secret; clean: without the secret
null-0...  as `clean`, each on different texts
canaries   base, fine-tuned on a corpus with planted canaries
unchanged  an untrained adapter of base; adapter: one trained as `tuned`
zero, random, broken   weights of zero, random weights, weights that overflow
nlu        an intent-and-slot model with a planted secret; nlu-never: an unused planting
plain, goldfish        three trainings each of `vestige train`
"""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.contract import grammar
from tests.files import write_rows

SECRET = "the vault password is zanzibar 4917"
OTHER_SECRET = "the vault password is helsinki 2238"
WIDTH, CONTEXT, NULLS = 48, 64, 19
COPIES = 12
"""Copies of the secret in a training text."""


class World:
    """A directory of models and files of texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "texts").mkdir(parents=True)
        used: set[str] = set()
        generator = random.Random(7)

        def texts(number: int, **settings: Any) -> list[str]:
            return grammar.texts(generator, number, used=used, **settings)

        self.texts = {
            "public": texts(400),
            "members": texts(96),
            "other": texts(96),
            "never": texts(240),
            "absent": texts(96),
            "nulls": texts(NULLS * 40),
            "german": texts(240, words=grammar.GERMAN),
            "long": texts(48, sentences=[10]),
            "long never": texts(240, sentences=[10]),
        }

    # files

    def file(self, name: str, texts: Sequence[str], *, each: int = 8) -> str:
        """A file of texts; every `each` texts have one author."""
        path = self.folder / "texts" / f"{name}.jsonl"
        rows = [{"text": text, "author": f"{name}{n // each}"} for n, text in enumerate(texts)]
        return str(write_rows(path, rows))

    def lines(self, name: str, *texts: str) -> Path:
        """A file with a secret on each line."""
        path = self.folder / "texts" / f"{name}.txt"
        path.write_text("\n".join(texts) + "\n")
        return path

    @cached_property
    def planted(self) -> Path:
        """A planted corpus."""
        _plant(self._carrier, self.folder / "planted", coin_flip=24, copies=12, seed=1)
        return self.folder / "planted"

    @cached_property
    def few(self) -> Path:
        """The same texts with only two canaries."""
        _plant(self._carrier, self.folder / "few", coin_flip=2, copies=1, seed=3)
        return self.folder / "few"

    @cached_property
    def _carrier(self) -> str:
        return self.file("carrier", [*self.texts["members"][:60], *self.texts["other"][:60]])

    # models

    def path(self, name: str) -> str:
        """The folder of a model."""
        path = self.folder / name
        if not path.exists():
            self._make(name.split("/")[0])
        return str(path)

    @property
    def nulls(self) -> list[str]:
        """Folders of the null models."""
        return [self.path(f"null-{number}") for number in range(NULLS)]

    def damaged(self, name: str, kind: str) -> str:
        """The folder of a copy of a training whose weights are zero, random or overflow."""
        change: Callable[[Tensor], Tensor] = {
            "zero": torch.zeros_like,
            "random": lambda weight: 0.05 * torch.randn_like(weight),
            "broken": lambda weight: 1e30 * weight,
        }[kind]
        copied = self.folder / "damaged" / kind / name
        if copied.exists():
            return str(copied)
        shutil.copytree(self.path(name), copied)
        torch.manual_seed(1)
        for file in copied.rglob("*.safetensors"):
            old = sha256(file.read_bytes()).hexdigest()
            weights = load_file(file)
            save_file(
                {k: change(w) if w.is_floating_point() else w for k, w in weights.items()},
                file, metadata={"format": "pt"},
            )  # fmt: skip
            # with a valid checksum, as a failed training would save it
            new = sha256(file.read_bytes()).hexdigest()
            for record in file.parent.glob("*.json"):
                record.write_text(record.read_text().replace(old, new))
        return str(copied)

    def copied(self, name: str, number: int) -> str:
        """The folder of a copy of a training."""
        copied = self.folder / "copies" / str(number) / name
        if not copied.exists():
            shutil.copytree(self.path(name), copied)
        return str(copied)

    def _make(self, name: str) -> None:
        texts, secrets = self.texts, [SECRET] * COPIES
        members, short = [*texts["members"], *secrets], texts["other"][:40]
        kind, _, number = name.partition("-")
        if kind == "null":
            first = int(number) * 40
            self._save(self._tuned(texts["nulls"][first : first + 40], 6), name)
        elif kind == "nlu":
            self._make_utterances()
        elif name in ("plain", "goldfish"):
            self._make_defence(name)
        else:
            models: dict[str, Callable[[], Any]] = {
                "base": lambda: self._trained(self._network(), texts["public"], 12, rate=4e-3),
                "tuned": lambda: self._tuned(members, 25),
                "other": lambda: self._tuned(texts["other"], 25),
                "update": lambda: self._tuned([*short, *secrets], 6),
                "clean": lambda: self._tuned(short, 6),
                "canaries": lambda: self._tuned(texts_of(self.planted), 10),
                "unchanged": self._adapter,
                "adapter": lambda: self._trained(self._adapter(), members, 25, rate=1e-2),
                "zero": lambda: self._overwritten(torch.zeros_like),
                "broken": lambda: self._overwritten(lambda weight: weight * 1e15, only="mlp"),
                "random": lambda: self._network(seed=5),
            }
            self._save(models[name](), name)

    def _tuned(self, texts: Sequence[str], epochs: int) -> Any:
        return self._trained(self._loaded("base"), texts, epochs)

    def _trained(
        self, model: Any, texts: Sequence[str], epochs: int, *, rate: float = 1.5e-3
    ) -> Any:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=rate)
        order = random.Random(len(texts))
        ids = [[0, *self.tokenizer.encode(text)[: CONTEXT - 2], 0] for text in texts]
        model.train()
        for _ in range(epochs):
            order.shuffle(ids)
            for first in range(0, len(ids), 16):
                rows = [torch.tensor(row) for row in ids[first : first + 16]]
                read = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
                labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
                loss = model(input_ids=read, labels=labels).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return model.eval()

    def _loaded(self, name: str) -> Any:
        from transformers import GPT2LMHeadModel

        return GPT2LMHeadModel.from_pretrained(self.path(name))

    def _adapter(self) -> Any:
        from peft import LoraConfig, get_peft_model

        layers = ["c_attn", "c_fc", "c_proj"]
        shape = LoraConfig(
            r=8, target_modules=layers, task_type="CAUSAL_LM", fan_in_fan_out=True
        )  # fmt: skip
        base = self._loaded("base")
        torch.manual_seed(0)
        return get_peft_model(base, shape)

    def _overwritten(self, change: Callable[[Tensor], Tensor], only: str = "") -> Any:
        model = self._loaded("tuned")
        for name, weight in model.named_parameters():
            if not only or (only in name and "weight" in name):
                weight.data = change(weight.data)
        return model

    def _save(self, model: Any, name: str) -> None:
        model.save_pretrained(self.folder / name)
        self.tokenizer.save_pretrained(self.folder / name)

    @cached_property
    def tokenizer(self) -> Any:
        """A tokenizer with subwords of the public texts and those of the null models."""
        return _tokenizer([*self.texts["public"], *self.texts["nulls"]])

    def _network(self, *, seed: int = 0) -> Any:
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(seed)
        shape = GPT2Config(
            vocab_size=len(self.tokenizer), n_positions=CONTEXT, n_embd=WIDTH, n_layer=2, n_head=2,
            bos_token_id=0, eos_token_id=0, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0,
        )  # fmt: skip
        return GPT2LMHeadModel(shape)

    def _make_utterances(self) -> None:
        import vestige

        tags = ["O", "B-song", "B-time"]
        rows = [
            {"tokens": [v, f"song{i % 7}", str(i % 10)], "tags": tags, "intent": v.title()}
            for v in ("play", "stop", "find")
            for i in range(12)
        ]
        songs = write_rows(self.folder / "texts" / "songs.jsonl", rows)
        for seed, name in enumerate(("nlu-planted", "nlu-never")):
            vestige.plant(
                str(songs), task="nlu", pattern=["pin:2"], copies=30, controls=20, seed=seed,
                out=self.folder / name,
            )  # fmt: skip
        _train(
            self.folder / "nlu-planted", "--task", "nlu", "--epochs", 10, "--hidden-size", 12,
            "--embedding-size", 8, "--learning-rate", 0.02, "--out", self.folder / "nlu",
        )  # fmt: skip

    def _make_defence(self, name: str) -> None:
        defence = () if name == "plain" else ("--defence", name)
        _train(
            self.planted, "--from", self.path("base"), "--epochs", 3, "--learning-rate", 0.0015,
            "--sequence-length", 48, "--batch-size", 16, "--seeds", 3,
            "--out", self.folder / name, *defence,
        )  # fmt: skip


def texts_of(planted: Path) -> list[str]:
    """The texts of a planted corpus."""
    rows = (planted / "corpus.jsonl").read_text().splitlines()
    return [json.loads(row)["text"] for row in rows]


def _plant(corpus: str, out: Path, **how: int) -> None:
    """Plant canaries of four words."""
    import vestige

    vestige.plant(corpus, out=out, length=4, **how)


def _train(*words: object) -> None:
    """Run `vestige train` in this process."""
    from vestige.cli.app import run as command

    if command(["train", *map(str, words), "--device", "cpu"]):
        raise RuntimeError("a training of the contract's world failed")


def _tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet, end = pre_tokenizers.ByteLevel.alphabet(), "<|endoftext|>"
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=[end], initial_alphabet=alphabet)
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=end, bos_token=end, unk_token=end
    )
