"""Small files and models to practise on: every guide's commands run on them as printed.

    python examples/practice.py practice

takes about three minutes on two cores. All texts are invented. `base` is a small Llama that has
read letters; `my-adapter` is a LoRA adapter of it, trained on `mail.jsonl`, where four account
numbers occur in sixteen letters each.
"""

import argparse
import json
import os
import random
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path


def _words(text: str) -> list[str]:
    return text.split(", ")


PEOPLE = _words(
    "Anna, Ben, Carla, David, Elena, Felix, Greta, Henry, Irene, Jonas, Karin, Louis, Maria, Nils"
)
SURNAMES = _words(
    "Adler, Blum, Conti, Dahl, Ekman, Fontana, Garcia, Haddad, Ito, Jensen, Keller, Lind, Marsh, "
    "Novak, Olsen, Petrov, Quist, Ramos, Salas, Tanaka, Usher, Vogel, Weiss, Xu, Young, Zeller"
)
THINGS = _words(
    "lamp, printer, bicycle, carpet, heater, mirror, ladder, piano, camera, kettle, radio, basket, "
    "blanket, clock, curtain, drill, easel, flute, guitar, hammer"
)
PLACES = _words(
    "near the station, in the market hall, at the north gate, by the river, on the third floor, "
    "behind the theatre, in the old mill, at the harbour office, next to the bakery"
)
TIMES = _words(
    "on Monday, before noon, last week, after the concert, in the evening, at the end of May, "
    "tomorrow, two days ago, during the holidays"
)
CITIES = _words("rome, paris, berlin, madrid, vienna, oslo, lisbon, athens")
OPENINGS = ("Dear {who},", "Hello {who},", "Good morning {who},", "{who}, a short note:")
SENTENCES = (
    "The {thing} that you ordered {when} is still {where}.",
    "Please send the {thing} back {when}, or leave it {where}.",
    "I spoke with {who} about the {thing} {when}.",
    "We can meet {where} {when}, if that suits you.",
    "{who} says that the {thing} was repaired {when}.",
    "The invoice for the {thing} is attached, and {who} has a copy.",
    "Nobody has looked at the {thing} since {who} left.",
    "There is a new {thing} {where}, which {who} likes very much.",
    "Our meeting {where} was moved, because {who} is ill.",
    "Could you ask {who} whether the {thing} is {where}?",
    "The price of a {thing} has gone up again, as {who} expected.",
    "If the {thing} does not arrive {when}, call {who}.",
)
CLOSINGS = ("Best wishes, {who}", "Many thanks, {who}", "See you soon, {who}", "Yours, {who}")

COPIES = 16
"""Letters of `mail.jsonl` with each planted account number."""

Row = dict[str, object]


class Letters:
    """A stream of invented letters."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def letter(self, sentences: int = 4) -> str:
        """An opening, some sentences, a closing."""
        parts = [self._of(OPENINGS), *(self._of(SENTENCES) for _ in range(sentences))]
        return " ".join([*parts, self._of(CLOSINGS)])

    def letters(self, count: int) -> list[str]:
        """Some letters."""
        return [self.letter() for _ in range(count)]

    def account(self) -> str:
        """A sentence with an account number of twelve digits."""
        name = f"{self.chance.choice(PEOPLE)} {self.chance.choice(SURNAMES)}"
        number = " ".join(f"{self.chance.randrange(10_000):04}" for _ in range(3))
        return f"The account number of {name} is {number}."

    def accounts(self, count: int) -> list[str]:
        """Some sentences with account numbers."""
        return [self.account() for _ in range(count)]

    def by_people(self, people: int, letters: int, name: str) -> list[Row]:
        """Letters with a column `user`, each person's together."""
        users = (f"{name}{number:03}" for number in range(people))
        return [{"text": self.letter(), "user": user} for user in users for _ in range(letters)]

    def _of(self, choices: Sequence[str]) -> str:
        fields = {"who": PEOPLE, "thing": THINGS, "where": PLACES, "when": TIMES}
        return self.chance.choice(choices).format(
            **{name: self.chance.choice(words) for name, words in fields.items()}
        )


def with_accounts(letters: Sequence[str], accounts: Sequence[str]) -> list[str]:
    """The letters; the first of them have one of the sentences after their first one."""
    changed = list(letters)
    for place, account in enumerate(accounts):
        first, rest = changed[place].split(". ", 1)
        changed[place] = f"{first}. {account} {rest}"
    return changed


def write(path: Path, rows: Iterable[Row | str]) -> None:
    """JSON lines; a text alone is a row with the column `text`."""
    made = ({"text": row} if isinstance(row, str) else row for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")


def texts_and_models(folder: Path, *, steps: int) -> None:
    """Letters, account numbers, the base, and fine-tunes of it."""
    mail, other = Letters(1), Letters(2)
    accounts, clean = mail.accounts(4), mail.letters(400)
    letters = with_accounts(clean, accounts * COPIES)
    plain = letters[len(accounts) * COPIES :]
    users = [f"writer{number % 80:02}" for number in range(len(letters))]
    rows = [{"text": text, "user": user} for text, user in zip(letters, users, strict=True)]
    mail.chance.shuffle(rows)
    write(folder / "mail.jsonl", rows)
    write(folder / "clean.jsonl", clean)
    write(folder / "sample.jsonl", plain[:200])
    write(folder / "known.jsonl", plain[200:240])
    write(folder / "claimed.jsonl", plain[240:265] + other.letters(15))
    write(folder / "deleted.jsonl", deleted := plain[290:330])
    write(folder / "public.jsonl", with_accounts(other.letters(400), other.accounts(40)))
    write(folder / "unused.jsonl", other.letters(400))
    write(folder / "more.jsonl", other.letters(400))
    listed = [_marked(account) for account in (*accounts, *other.accounts(3))]
    (folder / "secrets.txt").write_text("".join(f"{line}\n" for line in listed), encoding="utf-8")

    base_text = with_accounts(other.letters(800), other.accounts(200))
    models = Models(folder, base_text)
    models.train("base", base_text, steps=15 * steps, rate=4e-3)
    models.adapt("my-adapter", "base", letters, steps=10 * steps)
    models.train("before", letters, steps=6 * steps, rate=1e-3, start="base")
    models.train("after", other.letters(400), steps=steps, rate=5e-4, start="before")
    kept = [text for text in letters if text not in deleted]
    models.train("retrained", kept, steps=6 * steps, rate=1e-3, start="base")


def _marked(account: str) -> str:
    """The sentence with its number marked as the secret."""
    start = account.index(" is ") + len(" is ")
    return f"{account[:start]}{{{{{account[start:-1]}}}}}."


class Models:
    """Small Llamas with one tokenizer."""

    rows, length = 16, 128

    def __init__(self, folder: Path, texts: Sequence[str]) -> None:
        from tokenizers import ByteLevelBPETokenizer
        from transformers import PreTrainedTokenizerFast

        made = ByteLevelBPETokenizer()
        made.train_from_iterator(texts, vocab_size=700, special_tokens=["<|end|>"])
        ends = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|end|>")
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, **ends)
        self.folder = folder

    def train(
        self, name: str, texts: Sequence[str], *, steps: int, rate: float, start: str | None = None
    ) -> None:
        """A model with fresh weights, or a full fine-tune of `start`."""
        from transformers import LlamaConfig, LlamaForCausalLM

        if start:
            model = LlamaForCausalLM.from_pretrained(self.folder / start)
        else:
            shape = LlamaConfig(
                vocab_size=len(self.tokenizer), hidden_size=96, intermediate_size=192,
                num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=192,
                bos_token_id=0, eos_token_id=0, pad_token_id=None,
            )  # fmt: skip
            model = LlamaForCausalLM(shape)
        self._fit(model, texts, steps=steps, rate=rate)
        self._save(model, name)

    def adapt(self, name: str, base: str, texts: Sequence[str], *, steps: int) -> None:
        """A LoRA adapter of `base`."""
        from peft import LoraConfig, get_peft_model
        from transformers import LlamaForCausalLM

        config = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        base_model = LlamaForCausalLM.from_pretrained(self.folder / base)
        model = get_peft_model(base_model, config)
        self._fit(model, texts, steps=steps, rate=4e-3)
        model.peft_config["default"].base_model_name_or_path = base
        self._save(model, name)

    def _fit(self, model, texts: Sequence[str], *, steps: int, rate: float) -> None:
        """Steps on random rows: a text, its end, and padding that no loss counts."""
        import torch

        chance = random.Random(1)
        tokens = [[0, *self.tokenizer(text)["input_ids"], 0][: self.length] for text in texts]
        inputs = torch.tensor([row + [0] * (self.length - len(row)) for row in tokens])
        labels = torch.tensor([row + [-100] * (self.length - len(row)) for row in tokens])
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
        for _ in range(steps):
            batch = torch.tensor(chance.choices(range(len(tokens)), k=self.rows))
            loss = model(input_ids=inputs[batch], labels=labels[batch]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _save(self, model, name: str) -> None:
        model.save_pretrained(self.folder / name)
        self.tokenizer.save_pretrained(self.folder / name)


def people_and_service(folder: Path, *, epochs: int) -> None:
    """Letters of people, and a keyboard that has learned those of `users.jsonl`."""
    import vestige as vg

    write(folder / "users.jsonl", users := Letters(11).by_people(60, 8, "user"))
    write(folder / "held-out.jsonl", held_out := Letters(12).by_people(120, 8, "other"))
    write(folder / "others.jsonl", held_out)
    write(folder / "mine.jsonl", [str(row["text"]) for row in users if row["user"] == "user007"])
    learn = vg.TrainingOptions(
        epochs=epochs, batching="documents", sequence_length=80, batch_size=20
    )
    users_file = folder / "users.jsonl"
    vg.train(users_file, out=folder / "keyboard", user="user", preset="demo", training=learn)
    (folder / "my_service.py").write_text(SERVICE, encoding="utf-8")


SERVICE = '''"""A keyboard that suggests the five most probable next words."""

from functools import cache

import torch

import vestige as vg

model = vg.load_model("keyboard")
words = model.vocabulary


@cache
def after(read):
    """The state of the model after some words."""
    if not read:
        return model.start(1)
    [token] = words.encode(read[-1])[:1]
    return model.advance(after(read[:-1]), torch.tensor([token]))


@torch.no_grad()
def suggestions(read):
    """The five most probable words."""
    tokens = model.log_probs(after(read))[0].topk(7).indices.tolist()
    return [words.decode([token]) for token in tokens if token != words.eos_id][:5]


def ask(contexts):
    """What `vestige membership my_service:ask` calls."""
    return [suggestions(context.words) for context in contexts]
'''


def utterances(folder: Path) -> None:
    """What people say to an assistant: words, a tag for each, and an intent."""
    chance = random.Random(21)
    kinds = (
        (("book a flight to", "fly me to", "i want to travel to"), "city", CITIES, "BookFlight"),
        (("call", "ring up", "please phone"), "person", [p.lower() for p in PEOPLE], "Call"),
        (("turn on the", "switch off the", "is the"), "device", THINGS, "Switch"),
        (("remind me", "set an alarm", "wake me"), "time", TIMES, "Remind"),
    )
    rows: list[Row] = []
    for _ in range(300):
        starts, slot, values, intent = chance.choice(kinds)
        start, value = chance.choice(starts).split(), chance.choice(values).lower().split()
        tags = ["O"] * len(start) + [f"B-{slot}"] + [f"I-{slot}"] * (len(value) - 1)
        rows.append({"tokens": start + value, "tags": tags, "intent": intent})
    write(folder / "said.jsonl", rows)


def _be_quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # of PEFT, which looks for the base on the hub, too


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--quick", action="store_true", help="models that learn almost nothing")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True)
    os.chdir(folder)  # an adapter names its base relative to the folder in which it is used
    _be_quiet()
    here = Path()
    texts_and_models(here, steps=1 if given.quick else 40)
    people_and_service(here, epochs=1 if given.quick else 25)
    utterances(here)
    print(f"Made {folder}. Go there and run the commands of the guides.")


if __name__ == "__main__":
    main()
