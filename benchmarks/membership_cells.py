"""Scores of texts compared on fine-tunes of known texts: AUC, TPR at 1 % and 0.1 % FPR.

Three pairs of a base and texts: `wiki` and `reddit` continue a small Llama that is trained here,
`chat` continues `--smollm FOLDER`, SmolLM2-135M-Instruct. Each is fine-tuned with five seeds, with
all weights and with an adapter, and scored after one, two and four epochs: 18 cells. Each fine-tune
is the target in turn, over the texts that it read and those that no model read; the others of its
cell are its shadow models, over the remaining texts.

- `cells`: every score; `ours` is `learned`, from all tokens and from the 20 most probable that are
  shown. A hidden token gets the probability of the last one shown (floor) or the base's (expected).
- `nulls`: `ours` where the texts to test are those of another fine-tune, which is left out.

    VESTIGE_DATA=corpora python benchmarks/membership_cells.py --work DIR [--smollm SMOLLM2]

`--times` is the number of seeds.
"""

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import comments, films, lines
from harness import Row, Run, log, main
from networks import encode, fit, llama, pretrain, save, with_lora

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
        texts: first `never`, then `shadow_only`, then the texts of which each fine-tune reads some.
        members: the number of texts that a fine-tune reads.
        never: the number of texts that no fine-tune reads, scored for all.
        shadow_only: the number of such texts that only shadow models are scored on.
        rates: learning rates of all weights and of an adapter.
    """

    base: Path
    texts: np.ndarray
    members: int
    never: int
    shadow_only: int
    rates: dict[str, float]

    def read_by(self, seed: int) -> np.ndarray:
        """Positions of the texts that a fine-tune reads."""
        readable = np.arange(self.never + self.shadow_only, len(self.texts))
        rng = np.random.default_rng([7, seed])
        return np.sort(rng.choice(readable, self.members, replace=False))


# Texts and models --------------------------------------------------------------------------------


def texts_of(run: Run, name: str) -> list[str]:
    """Distinct paragraphs of WikiText-2 or comments of 30 to 120 words, in random order."""
    if name == "wiki":
        paragraphs = lines(run, "wikitext2/wiki.train.shuffled-articles.tokens")
        texts = [line.strip() for line in paragraphs if not line.startswith(" =")]
    else:
        texts = [" ".join(comment.text.split()) for comment in comments(run)]
    chosen = sorted({text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1]})
    random.Random(0).shuffle(chosen)
    return chosen


def chats(run: Run, tokenizer: Any) -> list[str]:
    """Film lines and their answers in the model's template, without its first and last token."""
    pairs = films(run)
    random.Random(0).shuffle(pairs)
    chosen = [pair for pair in pairs if 20 <= len(" ".join(pair).split()) <= 60][:4000]
    texts = []
    for question, answer in chosen:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        text = text.removeprefix(tokenizer.bos_token).rstrip()
        texts.append(text.removesuffix(tokenizer.eos_token))
    return texts


def pair_of(run: Run, name: str) -> Pair:
    """A pair by its name."""
    if name == "chat":
        folder = run.options.smollm
        texts = np.array(chats(run, read_tokenizer(folder)), object)
        return Pair(folder, texts, 120, 300, 100, {"full": 5e-5, "lora": 1e-3})
    base, rates = small_base(run), {"full": 3e-4, "lora": 2e-3}
    first, count, sizes = run.size(
        (READ_BY_BASE[name], 1250, (150, 700, 120)), (100, 160, (20, 60, 20))
    )
    texts = texts_of(run, name)[first : first + count]
    return Pair(base, np.array(texts, object), *sizes, rates)


def small_base(run: Run) -> Path:
    """A Llama of 11 M parameters over 4,096 subwords that read other texts for two epochs."""
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
    network: Any = llama(vocabulary, **shape, **positions, **tied).network
    ids = [id for row in vocabulary.encode_batch(texts) for id in (*row, vocabulary.eos_id)]
    blocks = torch.tensor(ids[: len(ids) // BLOCK * BLOCK]).view(-1, BLOCK)
    batches = torch.cat([torch.randperm(len(blocks)) for _ in range(2)]).split(16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.5e-3, total_steps=len(batches), pct_start=0.05
    )
    pretrain(network, (blocks[batch] for batch in batches), optimizer, schedule, autocast=True)
    save(network.to(torch.bfloat16), vocabulary, folder)
    return folder


def fine_tunes(run: Run, name: str, pair: Pair, kind: str, seed: int) -> list[Path]:
    """Folders of a fine-tune after each of `EPOCHS`."""
    folders = [run.folder / f"{name}-{kind}-{seed}-{epochs}" for epochs in EPOCHS]
    if folders[-1].exists():
        return folders
    model: Any = load_model(str(pair.base), device="cpu", dtype=torch.float32)
    texts, network = pair.texts[pair.read_by(seed)], model.network
    rows = encode(model.vocabulary, texts, LONGEST)
    torch.manual_seed(seed)
    if kind == "lora":
        network = with_lora(network, 16, lora_alpha=32)

    def save_epoch(epoch: int) -> None:
        folder = folders[EPOCHS.index(epoch)] if epoch in EPOCHS else None
        if folder and not folder.exists():
            save(deepcopy(network).to(torch.bfloat16), model.vocabulary, folder)

    fit(
        network, rows, epochs=EPOCHS[-1], rate=pair.rates[kind], batch=BATCH, seed=seed, clip=1.0,
        after_epoch=save_epoch,
    )  # fmt: skip
    log(f"trained {name}, {kind}, seed {seed}")
    return folders


# Scores ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Statistics of a pair's texts by its base and by fine-tunes of one kind and length.

    Attributes:
        texts: those that no fine-tune reads, then those that any reads.
        read: (fine-tunes, texts) whether a fine-tune reads a text.
        compared: (texts,) whether a text is a non-member that all fine-tunes are scored on.
    """

    texts: np.ndarray
    read: np.ndarray
    compared: np.ndarray
    base: TokenStatistics
    tunes: tuple[TokenStatistics, ...]

    def audited(self, target: int) -> np.ndarray:
        """Positions of the texts that a fine-tune is scored on."""
        return np.flatnonzero(self.compared | self.read[target])

    def as_null(self, target: int) -> "Cell":
        """The cell in which the target is said to have read what the next fine-tune read.

        The next fine-tune is left out; the target comes first.
        """
        other = (target + 1) % len(self.read)
        shadows = [n for n in range(len(self.read)) if n not in (target, other)]
        unread = np.flatnonzero(~self.read[target])
        return Cell(
            self.texts[unread],
            self.read[[other, *shadows]][:, unread],
            self.compared[unread],
            first_tokens(self.base, unread),
            tuple(first_tokens(self.tunes[n], unread) for n in (target, *shadows)),
        )

    def plain(self, target: int) -> dict[str, np.ndarray]:
        """Scores of texts without shadow models."""
        audited = self.audited(target)
        statistics = first_tokens(self.tunes[target], audited)
        base = first_tokens(self.base, audited)
        scores = {name: SCORES[name](target=statistics, base=base) for name in SCORES}
        scores["zlib"] = zlib_score(statistics, list(self.texts[audited]))
        least = statistics.likeliest_log_probs[:, SHOWN - 1]
        floor = np.where(statistics.ranks <= SHOWN, statistics.log_probs, least)
        hidden = {
            "floor": replace(statistics, log_probs=floor),
            "expected": shown_only(statistics, base, likeliest=SHOWN),
        }
        for name in ("log-ratio", "error-zone"):
            for rule, shown in hidden.items():
                scores[f"{name}, {SHOWN} shown, {rule}"] = SCORES[name](shown, base)
        return scores

    def ours(self, target: int) -> dict[str, np.ndarray]:
        """The learned score, from all tokens and from those shown."""
        audited = self.audited(target)
        others = [n for n in range(len(self.tunes)) if n != target]
        rest = np.flatnonzero(~(self.compared | self.read[target]))
        rest_base, base = first_tokens(self.base, rest), first_tokens(self.base, audited)
        shadows = [
            ShadowStatistics(first_tokens(self.tunes[n], rest), rest_base, self.read[n][rest])
            for n in others
        ]
        log_probs = [first_tokens(self.tunes[n], audited).log_probs for n in others]
        unread = non_member_means(log_probs, self.read[others][:, audited], base)
        statistics = first_tokens(self.tunes[target], audited)
        return {
            f"ours{suffix}": WeightedGains.fit(shadows, shown=shown).scores(
                statistics, base, unread
            )
            for shown, suffix in ((None, ""), (SHOWN, f", {SHOWN} shown"))
        }


def make_cells(run: Run) -> Iterator[tuple[str, Cell]]:
    """All cells; models are made unless they exist."""
    seeds = run.times(5, 3)
    for name in run.size(["wiki", "reddit", *(["chat"] if run.options.smollm else [])], ["wiki"]):
        pair = pair_of(run, name)
        read_by = [pair.read_by(seed) for seed in range(seeds)]
        unread = np.arange(pair.never + pair.shadow_only)
        positions = np.concatenate([unread, np.unique(np.concatenate(read_by))])
        read = np.stack([np.isin(positions, members) for members in read_by])
        texts, compared = pair.texts[positions], positions < pair.never
        base = statistics_of(run, pair.base, texts, likeliest=100)
        for kind in pair.rates:
            folders = [fine_tunes(run, name, pair, kind, seed) for seed in range(seeds)]
            for epochs, of_epoch in zip(EPOCHS, zip(*folders, strict=True), strict=True):
                tunes = tuple(statistics_of(run, folder, texts) for folder in of_epoch)
                title = f"{name}, {kind}, {epochs} epochs"
                yield title, Cell(texts, read, compared, base, tunes)


def statistics_of(
    run: Run, folder: Path, texts: np.ndarray, likeliest: int = SHOWN
) -> TokenStatistics:
    """Cached statistics of texts by a model."""
    model = load_model(str(folder), device="cpu", dtype=torch.bfloat16).eval()
    ids = [row[:LONGEST] for row in model.vocabulary.encode_batch(list(texts))]
    name = {"sha256": f"{folder} {LONGEST}"}
    with cached_outputs(run.folder / "statistics", SILENT) as outputs:
        return outputs.statistics(model, name, ids, task=folder.name, likeliest=likeliest)


# Tables ------------------------------------------------------------------------------------------


def figures(scores: np.ndarray, member: np.ndarray) -> list[float]:
    """AUC, then TPR at each rate of false positives."""
    members, others = scores[member], np.sort(scores[~member])
    below = np.searchsorted(others, members, "left") + np.searchsorted(others, members, "right")
    rates = [
        float((members > others[-1 - int(rate * others.size)]).mean()) for rate in FALSE_POSITIVES
    ]
    return [float(below.mean() / (2 * others.size)), *rates]


def cells(run: Run) -> list[Row]:
    """Every score of every cell, and the lead of ours over the error zone."""
    rows = []
    for title, cell in make_cells(run):
        by_target = []
        for target in range(len(cell.tunes)):
            member = cell.read[target][cell.audited(target)]
            scores = cell.plain(target) | cell.ours(target)
            by_target.append({name: figures(column, member) for name, column in scores.items()})
        rows += averages(title, by_target)
        lead = [
            {"ours less error-zone": np.subtract(one["ours"], one["error-zone"]).tolist()}
            for one in by_target
        ]
        rows += averages(title, lead)
    return rows


def nulls(run: Run) -> list[Row]:
    """The scores of ours for texts that the target did not read."""
    rows = []
    for title, cell in make_cells(run):
        by_target = []
        for target in range(len(cell.tunes)):
            null = cell.as_null(target)
            member = null.read[0][null.audited(0)]
            by_target.append({name: figures(s, member) for name, s in null.ours(0).items()})
        rows += averages(title, by_target)
    return rows


def averages(cell: str, by_target: Sequence[dict[str, list[float]]]) -> list[Row]:
    """Means over targets by score, with half of Student's 95 % interval."""
    rows = []
    for score in by_target[0]:
        row: Row = {"cell": cell, "score": score}
        columns = zip(*(target[score] for target in by_target), strict=True)
        for name, values in zip(NAMES, columns, strict=True):
            average = mean(list(values))
            half = 0.0 if average is None or average.high is None else average.high - average.low
            row[name] = f"{np.mean(values):.3f} ± {half / 2:.3f}"
        rows.append(row)
    return rows


def options(parser: Any) -> None:
    """The base of `chat`."""
    parser.add_argument("--smollm", type=Path, help="a folder of SmolLM2-135M-Instruct, for chat")


PARTS = {"cells": cells, "nulls": nulls}

if __name__ == "__main__":
    main("membership_cells", __doc__, PARTS, options)
