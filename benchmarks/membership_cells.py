"""Scores of texts compared on fine-tunes of known texts: AUC, TPR at 1 % and 0.1 % FPR.

Three pairs of a base and its texts: `wiki` and `reddit` continue a small Llama that is trained
here, `chat` continues `--smollm FOLDER`, SmolLM2-135M-Instruct. Each is fine-tuned by five seeds,
with all weights and with an adapter, and scored after one, two and four epochs: 18 cells. Each
fine-tune is the target in turn, over the texts that it read and those that none did; the others of
its cell are its shadow models, on texts that are not among these.

- `cells`: every score; `ours` is `learned`, from all tokens and from the 20 likeliest that are
  shown. A hidden token is as likely as the least one shown (floor), or as the base says (expected).
- `nulls`: `ours` where the texts to test are those of another fine-tune, which is left out.

    VESTIGE_DATA=corpora python benchmarks/membership_cells.py --work DIR [--smollm SMOLLM2]

`--times` is the number of seeds, `--pairs` and `--kinds` name some.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import comments, films, lines
from harness import Row, Run, log, main
from networks import encode, fit, llama

from vestige.audits.membership.text_scores import (
    SCORES,
    ShadowStatistics,
    WeightedGains,
    non_member_means,
    zlib_score,
)
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary, read_tokenizer
from vestige.metrics.estimates import mean
from vestige.models.checkpoints import load_model
from vestige.models.shown_statistics import shown_only
from vestige.models.token_statistics import TokenStatistics, cached_outputs, first_tokens
from vestige.monitor import SILENT

EPOCHS, LONGEST, BATCH, BLOCK, SHOWN = (1, 2, 4), 200, 8, 128, 20
FALSE_POSITIVES = (0.01, 0.001)
NAMES = ("AUC", "TPR at 1 %", "TPR at 0.1 %")
WORDS = (30, 120)
READ_BY_BASE = {"wiki": 6000, "reddit": 10_000}


@dataclass(frozen=True)
class Pair:
    """A base, and texts that it did not read here.

    Attributes:
        texts: of which each fine-tune reads some.
        members: texts that a fine-tune reads.
        never: texts that none reads and all are scored on.
        apart: such texts for fine-tunes that are a shadow model.
        rates: learning rates, of all weights and of an adapter.
    """

    base: Path
    texts: np.ndarray
    members: int
    never: int
    apart: int
    rates: dict[str, float]

    def drawn(self, seed: int) -> np.ndarray:
        """Places of the texts that a fine-tune reads."""
        read = np.arange(self.never + self.apart, len(self.texts))
        return np.sort(np.random.default_rng([7, seed]).choice(read, self.members, replace=False))


# Texts and models --------------------------------------------------------------------------------


def texts_of(run: Run, name: str) -> list[str]:
    """Paragraphs of WikiText-2 or comments, of the right length, each once, in a drawn order."""
    if name == "wiki":
        read = lines(run, "wikitext2/wiki.train.shuffled-articles.tokens")
        texts = [line.strip() for line in read if not line.startswith(" =")]
    else:
        texts = [" ".join(one.text.split()) for one in comments(run)]
    kept = sorted({text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1]})
    random.Random(0).shuffle(kept)
    return kept


def chats(run: Run, tokenizer: Any) -> list[str]:
    """Lines of films and their answers in the model's template, without begin and end."""
    pairs = films(run)
    random.Random(0).shuffle(pairs)
    kept = [pair for pair in pairs if 20 <= len(" ".join(pair).split()) <= 60][:4000]
    found = []
    for question, answer in kept:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        text = text.removeprefix(tokenizer.bos_token).rstrip()
        found.append(text.removesuffix(tokenizer.eos_token))
    return found


def pair_of(run: Run, name: str) -> Pair:
    """A pair by its name."""
    if name == "chat":
        folder = run.options.smollm
        texts = np.array(chats(run, read_tokenizer(folder)), object)
        return Pair(folder, texts, 120, 300, 100, {"full": 5e-5, "lora": 1e-3})
    base, rates = small_base(run), {"full": 3e-4, "lora": 2e-3}
    read, kept, sizes = run.size(
        (READ_BY_BASE[name], 1250, (150, 700, 120)), (100, 160, (20, 60, 20))
    )
    texts = texts_of(run, name)[read : read + kept]
    return Pair(base, np.array(texts, object), *sizes, rates)


def small_base(run: Run) -> Path:
    """A Llama of 11 M parameters over 4,096 word pieces that read other texts for two epochs."""
    folder = run.folder / "base"
    if folder.exists():
        return folder
    texts = [
        text
        for name, number in READ_BY_BASE.items()
        for text in texts_of(run, name)[: run.size(number, 100)]
    ]
    random.Random(1).shuffle(texts)
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=run.size(4096, 400))
    shape = run.size(
        {"width": 320, "inner": 832, "layers": 8, "heads": 5},
        {"width": 16, "inner": 32, "layers": 2, "heads": 2},
    )
    positions, tied = {"max_position_embeddings": 512}, {"tie_word_embeddings": True}
    network: Any = llama(vocabulary, **shape, **positions, **tied).network.train()
    ids = [id for row in vocabulary.encode_batch(texts) for id in (*row, vocabulary.eos_id)]
    blocks = torch.tensor(ids[: len(ids) // BLOCK * BLOCK]).view(-1, BLOCK)
    order = torch.cat([torch.randperm(len(blocks)) for _ in range(2)]).split(16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.5e-3, total_steps=len(order), pct_start=0.05
    )
    for step, chosen in enumerate(order):
        with torch.autocast("cpu", torch.bfloat16):
            loss = network(blocks[chosen], labels=blocks[chosen]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0:
            log(f"base: step {step} of {len(order)}, {float(loss.detach()):.3f} nats")
    save(network, folder, vocabulary.save)
    return folder


def save(network: Any, folder: Path, beside: Callable[[Path], object]) -> None:
    """A folder that appears whole, in bfloat16."""
    part = folder.with_name(folder.name + ".partial")
    shutil.rmtree(part, ignore_errors=True)
    network = deepcopy(network).to(torch.bfloat16)
    network.save_pretrained(part)
    beside(part)
    part.rename(folder)


def fine_tunes(run: Run, name: str, pair: Pair, kind: str, seed: int) -> list[Path]:
    """Folders of a fine-tune after each of `EPOCHS`."""
    folders = [run.folder / f"{name}-{kind}-{seed}-{epochs}" for epochs in EPOCHS]
    if folders[-1].exists():
        return folders
    model: Any = load_model(str(pair.base), device="cpu", dtype=torch.float32)
    rows, network = encode(model, pair.texts[pair.drawn(seed)], LONGEST), model.network
    torch.manual_seed(seed)
    if kind == "lora":
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        network = get_peft_model(network, lora)

    def keep(epoch: int) -> None:
        if epoch in EPOCHS:
            save(network, folders[EPOCHS.index(epoch)], model.vocabulary.save)

    fit(
        network, rows, epochs=EPOCHS[-1], rate=pair.rates[kind], batch=BATCH, seed=seed, clip=1.0,
        after_epoch=keep,
    )  # fmt: skip
    log(f"trained {name}, {kind}, seed {seed}")
    return folders


# Figures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Statistics of a pair's texts by its base and by fine-tunes of one kind and length.

    Attributes:
        texts: those that none reads, those kept apart, and what any fine-tune reads.
        read: (fine-tunes, texts) who reads what.
        compared: (texts,) the never-read ones beside which all are scored.
    """

    texts: np.ndarray
    read: np.ndarray
    compared: np.ndarray
    base: TokenStatistics
    tunes: tuple[TokenStatistics, ...]

    def audited(self, target: int) -> np.ndarray:
        """Places of the texts that a fine-tune is scored on."""
        return np.flatnonzero(self.compared | self.read[target])

    def pretended(self, target: int) -> "Cell":
        """A null: what the next fine-tune read is said to be what the target read.

        The next fine-tune is left out; the target comes first.
        """
        other = (target + 1) % len(self.read)
        kept = [target, *(each for each in range(len(self.read)) if each not in (target, other))]
        places = np.flatnonzero(~self.read[target])
        return Cell(
            self.texts[places],
            self.read[[other, *kept[1:]]][:, places],
            self.compared[places],
            first_tokens(self.base, places),
            tuple(first_tokens(self.tunes[each], places) for each in kept),
        )

    def plain(self, target: int) -> dict[str, np.ndarray]:
        """Scores of texts without shadow models."""
        own = self.audited(target)
        told, base = first_tokens(self.tunes[target], own), first_tokens(self.base, own)
        found = {name: SCORES[name](target=told, base=base) for name in SCORES}
        found["zlib"] = zlib_score(told, list(self.texts[own]))
        least = told.likeliest_log_probs[:, SHOWN - 1]
        floor = np.where(told.ranks <= SHOWN, told.log_probs, least)
        hidden = {
            "floor": replace(told, log_probs=floor),
            "expected": shown_only(told, base, likeliest=SHOWN),
        }
        for name in ("log-ratio", "error-zone"):
            for how, shown in hidden.items():
                found[f"{name}, {SHOWN} shown, {how}"] = SCORES[name](shown, base)
        return found

    def ours(self, target: int) -> dict[str, np.ndarray]:
        """The learned score, from all tokens and from those shown."""
        own, others = self.audited(target), [n for n in range(len(self.tunes)) if n != target]
        left = np.flatnonzero(~(self.compared | self.read[target]))
        below, base = first_tokens(self.base, left), first_tokens(self.base, own)
        shadows = [
            ShadowStatistics(first_tokens(self.tunes[n], left), below, self.read[n][left])
            for n in others
        ]
        told = [first_tokens(self.tunes[n], own).log_probs for n in others]
        unread = non_member_means(told, self.read[others][:, own], base)
        target_statistics = first_tokens(self.tunes[target], own)
        return {
            f"ours{part}": WeightedGains.fit(shadows, shown=shown).scores(
                target_statistics, base, unread
            )
            for shown, part in ((None, ""), (SHOWN, f", {SHOWN} shown"))
        }


def made_cells(run: Run) -> Iterator[tuple[str, Cell]]:
    """All cells, models made where they are missing."""
    seeds = run.times(5, 3)
    for name in run.options.pairs or (["wiki"] if run.quick else ["wiki", "reddit", "chat"]):
        pair = pair_of(run, name)
        drawn = [pair.drawn(seed) for seed in range(seeds)]
        unread = np.arange(pair.never + pair.apart)
        places = np.concatenate([unread, np.unique(np.concatenate(drawn))])
        read = np.stack([np.isin(places, one) for one in drawn])
        texts, compared = pair.texts[places], places < pair.never
        base = asked(run, pair.base, texts, likeliest=100)
        for kind in run.options.kinds:
            folders = [fine_tunes(run, name, pair, kind, seed) for seed in range(seeds)]
            for epochs, own in zip(EPOCHS, zip(*folders, strict=True), strict=True):
                tunes = tuple(asked(run, folder, texts) for folder in own)
                yield (
                    f"{name}, {kind}, {epochs} epochs",
                    Cell(texts, read, compared, base, tunes),
                )


def asked(run: Run, folder: Path, texts: np.ndarray, likeliest: int = SHOWN) -> TokenStatistics:
    """Statistics of texts, each computed once."""
    model = load_model(str(folder), device="cpu", dtype=torch.bfloat16).eval()
    ids = [row[:LONGEST] for row in model.vocabulary.encode_batch(list(texts))]
    name = {"sha256": f"{folder} {LONGEST}"}
    with cached_outputs(run.folder / "statistics", SILENT) as outputs:
        return outputs.statistics(model, name, ids, task=folder.name, likeliest=likeliest)


def figures(scores: np.ndarray, seen: np.ndarray) -> list[float]:
    """AUC, then TPR at each rate of false positives."""
    own, other = scores[seen], np.sort(scores[~seen])
    below = np.searchsorted(other, own, "left") + np.searchsorted(other, own, "right")
    rates = [float((own > other[-1 - int(rate * other.size)]).mean()) for rate in FALSE_POSITIVES]
    return [float(below.mean() / (2 * other.size)), *rates]


def cells(run: Run) -> list[Row]:
    """Every score of every cell, and how far ours is ahead of the error zone."""
    rows = []
    for title, cell in made_cells(run):
        told = []
        for turn in range(len(cell.tunes)):
            seen = cell.read[turn][cell.audited(turn)]
            scores = cell.plain(turn) | cell.ours(turn)
            told.append({name: figures(one, seen) for name, one in scores.items()})
        rows += [
            {"cell": title, "score": name, **averages([one[name] for one in told])}
            for name in told[0]
        ]
        ahead = [np.subtract(one["ours"], one["error-zone"]).tolist() for one in told]
        rows.append({"cell": title, "score": "ours less error-zone", **averages(ahead)})
    return rows


def nulls(run: Run) -> list[Row]:
    """What ours finds where there is nothing."""
    rows = []
    for title, cell in made_cells(run):
        told = []
        for turn in range(len(cell.tunes)):
            own = cell.pretended(turn)
            seen = own.read[0][own.audited(0)]
            told.append({name: figures(one, seen) for name, one in own.ours(0).items()})
        rows += [
            {"cell": title, "score": name, **averages([one[name] for one in told])}
            for name in told[0]
        ]
    return rows


def averages(figures: Sequence[Sequence[float]]) -> Row:
    """Means over fine-tunes, with half of Student's 95 % interval."""
    told = {}
    for name, values in zip(NAMES, zip(*figures, strict=True), strict=True):
        found = mean(list(values))
        half = 0.0 if found is None or found.high is None else (found.high - found.low) / 2
        told[name] = f"{np.mean(values):.3f} ± {half:.3f}"
    return told


def options(parser: Any) -> None:
    """Pairs and kinds of fine-tunes."""
    parser.add_argument("--smollm", type=Path, help="a folder of SmolLM2-135M-Instruct, for chat")
    parser.add_argument("--pairs", nargs="+", choices=("wiki", "reddit", "chat"))
    parser.add_argument("--kinds", nargs="+", choices=("full", "lora"), default=["full", "lora"])


PARTS = {"cells": cells, "nulls": nulls}

if __name__ == "__main__":
    main("membership_cells", __doc__, PARTS, options)
