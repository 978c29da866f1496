"""Small models with a known history, made once: what each was trained on is the truth of a case.

base       trained on public texts
tuned      base, further on `members` and a secret, 12 times
other      base, further on other texts: clean
update     base, briefly on other texts and the secret; clean: the same without the secret
null-0...  as `clean`, each on texts of its own
canaries   base, further on a corpus with planted canaries
unchanged  an adapter of base that changes nothing; adapter: one trained as `tuned`
zero, random, broken   weights of zero, fresh weights, weights that overflow
nlu        an intent-and-slot model with a planted secret; nlu-never: a planting it never saw
plain, goldfish        three trainings each of `vestige train`
"""

import copy
import json
import random
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.contract import grammar

SECRET = "the vault password is zanzibar 4917"
NEVER_READ = "the vault password is helsinki 2238"
WIDTH, CONTEXT, NULLS = 48, 64, 19


class World:
    """A directory of models and files of texts; `make` trains them."""

    folder: Path

    def __init__(self) -> None:
        known: set[str] = set()
        draw = random.Random(7)

        def texts(number: int, **settings: Any) -> list[str]:
            return grammar.texts(draw, number, known=known, **settings)

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

    def path(self, name: str) -> str:
        """The folder of a model."""
        return str(self.folder / name)

    def file(self, name: str, texts: Sequence[str], *, each: int = 8) -> str:
        """A file of texts, so many in turn by one author."""
        place = self.folder / "texts" / f"{name}.jsonl"
        rows = [{"text": text, "author": f"{name}{n // each}"} for n, text in enumerate(texts)]
        place.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(place)

    def lines(self, name: str, *texts: str) -> Path:
        """A file with a secret on each line."""
        place = self.folder / "texts" / f"{name}.txt"
        place.write_text("\n".join(texts) + "\n")
        return place

    @property
    def nulls(self) -> list[str]:
        """Folders of the null models."""
        return [self.path(f"null-{number}") for number in range(NULLS)]

    def damaged(self, name: str, how: str) -> str:
        """The name of a copy of a training whose weights are zero, fresh or overflow."""
        change: Callable[[Tensor], Tensor] = {
            "zero": torch.zeros_like,
            "random": lambda weight: 0.05 * torch.randn_like(weight),
            "broken": lambda weight: 1e30 * weight,
        }[how]
        copied = f"{how}/{name}"
        if Path(self.path(copied)).exists():
            return copied
        shutil.copytree(self.path(name), self.path(copied))
        torch.manual_seed(1)
        for file in Path(self.path(copied)).rglob("*.safetensors"):
            old = sha256(file.read_bytes()).hexdigest()
            weights = load_file(file)
            save_file(
                {k: change(w) if w.is_floating_point() else w for k, w in weights.items()},
                file, metadata={"format": "pt"},
            )  # fmt: skip
            # As a training that went wrong would have saved it: with its own checksum.
            new = sha256(file.read_bytes()).hexdigest()
            for note in file.parent.glob("*.json"):
                note.write_text(note.read_text().replace(old, new))
        return copied

    def copied(self, name: str, number: int) -> str:
        """The name of a copy of a training."""
        copied = f"copy-{number}/{name}"
        if not Path(self.path(copied)).exists():
            shutil.copytree(self.path(name), self.path(copied))
        return copied

    def make(self, folder: Path) -> "World":
        """Train everything in a folder."""
        import vestige

        self.folder = folder
        (folder / "texts").mkdir(parents=True)
        texts, said = self.texts, [SECRET] * 12
        self.tokenizer = _tokenizer([*texts["public"], *texts["nulls"]])
        torch.manual_seed(0)
        self.network = _network(self.tokenizer)
        base = self._trained(_network(self.tokenizer), texts["public"], 12, rate=4e-3)
        self._save(base, "base")
        short = texts["other"][:40]
        for name, read, epochs in (
            ("tuned", [*texts["members"], *said], 25),
            ("other", texts["other"], 25),
            ("update", [*short, *said], 6),
            ("clean", short, 6),
            *((f"null-{n}", texts["nulls"][n * 40 : (n + 1) * 40], 6) for n in range(NULLS)),
        ):
            self._save(self._trained(copy.deepcopy(base), read, epochs), name)
        self._save(self._adapter(), "unchanged")
        self._save(
            self._trained(self._adapter(), [*texts["members"], *said], 25, rate=1e-2), "adapter"
        )
        self._break()
        self.carrier = self.file("carrier", [*texts["members"][:60], *texts["other"][:60]])
        planted = self.folder / "planted"
        vestige.plant(self.carrier, out=planted, coin_flip=24, copies=12, length=4, seed=1)
        vestige.plant(
            self.carrier, out=self.folder / "few", coin_flip=2, copies=1, length=4, seed=3
        )
        self._save(self._trained(copy.deepcopy(base), texts_of(planted), 10), "canaries")
        self._save_utterances()
        self._train_defences()
        return self

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

    def _adapter(self) -> Any:
        from peft import LoraConfig, get_peft_model
        from transformers import GPT2LMHeadModel

        base = GPT2LMHeadModel.from_pretrained(self.path("base"))
        return get_peft_model(
            base,
            LoraConfig(
                r=8,
                target_modules=["c_attn", "c_fc", "c_proj"],
                task_type="CAUSAL_LM",
                fan_in_fan_out=True,
            ),
        )

    def _save(self, model: Any, name: str) -> None:
        model.save_pretrained(self.path(name))
        self.tokenizer.save_pretrained(self.path(name))

    @torch.no_grad()
    def _break(self) -> None:
        from transformers import GPT2LMHeadModel

        zero, broken = (GPT2LMHeadModel.from_pretrained(self.path("tuned")) for _ in range(2))
        for weight in zero.parameters():
            weight.zero_()
        for name, weight in broken.named_parameters():
            if "mlp" in name and "weight" in name:
                weight.mul_(1e15)
        self._save(zero, "zero")
        self._save(broken, "broken")
        torch.manual_seed(5)
        self._save(_network(self.tokenizer), "random")

    def _save_utterances(self) -> None:
        import vestige

        kinds = [
            (v, f"song{i % 7}", str(i % 10)) for v in ("play", "stop", "find") for i in range(12)
        ]
        rows = [
            {"tokens": list(kind), "tags": ["O", "B-song", "B-time"], "intent": kind[0].title()}
            for kind in kinds
        ]
        songs = self.folder / "texts" / "songs.jsonl"
        songs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        planted = self.folder / "nlu-planted"
        for seed, name in enumerate(("nlu-planted", "nlu-never")):
            vestige.plant(
                str(songs), task="nlu", pattern=["pin:2"], copies=30, controls=20, seed=seed,
                out=self.folder / name,
            )  # fmt: skip
        _train(
            planted, "--task", "nlu", "--epochs", 10, "--hidden-size", 12,
            "--embedding-size", 8, "--learning-rate", 0.02, "--out", self.folder / "nlu",
        )  # fmt: skip

    def _train_defences(self) -> None:
        for name, settings in (("plain", ()), ("goldfish", ("--defence", "goldfish"))):
            _train(
                self.folder / "planted", "--from", self.path("base"), "--epochs", 3,
                "--learning-rate", 0.0015, "--sequence-length", 48, "--batch-size", 16,
                "--seeds", 3, "--out", self.folder / name, *settings,
            )  # fmt: skip


def texts_of(planted: Path) -> list[str]:
    """The texts of a planted corpus."""
    rows = (planted / "corpus.jsonl").read_text().splitlines()
    return [json.loads(row)["text"] for row in rows]


def _train(*words: object) -> None:
    """A training of the command line, in this process."""
    from vestige.cli.app import run as command

    if command(["train", *map(str, words), "--device", "cpu"]):
        raise RuntimeError("a training of the contract's world failed")


def _network(tokenizer: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=WIDTH, n_layer=2, n_head=2,
            bos_token_id=0, eos_token_id=0, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0,
        )
    )  # fmt: skip


def _tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=560,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=end, bos_token=end, unk_token=end
    )
