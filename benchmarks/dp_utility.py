"""What privacy costs a LoRA fine-tune in utility, and what it buys.

A causal model (`--model FOLDER`) gets a LoRA adapter on short comments of Reddit, some of each
author. Among the authors are coin-flip canaries, each of which writes one phrase several times. The
unit is the author. There are plain fine-tunes and private ones by `PrivateTrainer` at three
epsilons, with the same canaries. For every training: perplexity on comments of other authors,
exposure of planted canaries and controls, measured epsilon; means over `--times` trainings.

- `twice`: each comment is read 2.3 times, by adapters on all linear matrices.
- `once`: each comment is read once, by adapters on the query and value matrices.

    VESTIGE_DATA=corpora python benchmarks/dp_utility.py twice --model SMOLLM2 --work DIR

Trainings in DIR are not repeated; `vestige report DIR/twice/comparison` compares them.
"""

import json
import shutil
import time
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import invented
from harness import Row, Run, log, main
from networks import inputs_of, new_llama, padded, with_lora
from transformers import AutoModelForCausalLM

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.groups import SeedGroup
from vestige.audits.comparison.measurements import Guarantee, MeasuredTraining
from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.exposure.epsilon import audit_canaries, canary_scores
from vestige.data.canaries.coins import CanaryKind, repeated_tokens
from vestige.data.canaries.texts import Canary, Manifest, load_canaries
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.formats.dialogue import read_reddit
from vestige.data.subwords import SubwordVocabulary, read_tokenizer
from vestige.defences.methods.private import DPSGD
from vestige.integrations.planting import plant
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.privacy.ledger import from_json
from vestige.training.evaluate import score_documents

DELTA, REFERENCES, RANK, RATE = 1e-4, 256, 2, 2e-3
EPSILONS: dict[str, float | None] = {"none": None, "eps8": 8, "eps3": 3, "eps1": 1}


@dataclass(frozen=True, kw_only=True)
class Study:
    """Texts, canaries and trainings.

    Attributes:
        authors: whose comments are read.
        held_out: authors whose comments no training reads.
        comments: of each author.
        coins: flipped for as many canaries.
        copies: of a planted canary.
        kind: of the canaries, each of five tokens or words.
        batch: authors of a step on average.
        targets: layers that get an adapter.
        private_rate: learning rate with privacy.
    """

    authors: int = 1000
    held_out: int = 100
    comments: int = 2
    coins: int = 100
    copies: int = 8
    kind: CanaryKind = "repeated-token"
    steps: int = 32
    batch: int = 32
    targets: str | tuple[str, ...] = ("q_proj", "v_proj")
    private_rate: float = 6e-3
    bf16: bool = True


STUDIES = {
    "twice": Study(
        authors=400, comments=1, copies=4, kind="words", steps=64, batch=16, targets="all-linear",
        private_rate=4e-3, bf16=False,
    ),
    "once": Study(),
}  # fmt: skip
QUICK = Study(authors=30, held_out=10, coins=12, kind="words", steps=2, private_rate=RATE)
"""The small model has too few unused tokens for canaries of repeated tokens."""


# Texts -------------------------------------------------------------------------------------------


def short_comments(run: Run, authors: int, number: int) -> list[tuple[str, str]]:
    """(author, comment of 3 to 8 words), `number` of every author, in random order of authors."""
    if run.quick:
        texts = invented(authors * number, seed=3, words=(3, 8))
        return [(f"author {index // number}", text) for index, text in enumerate(texts)]
    corpus = read_reddit(run.data / "reddit_college")
    texts, names = list(corpus), corpus.users or []
    by_author: dict[str, list[str]] = {}
    full = 0
    for index in np.random.default_rng(0).permutation(len(texts)):
        text = " ".join(texts[index].split())
        chosen = by_author.setdefault(names[index], [])
        if 3 <= len(text.split()) <= 8 and "http" not in text and len(chosen) < number:
            chosen.append(text)
            full += len(chosen) == number
        if full == authors:
            return [(name, text) for name, chosen in by_author.items()
                    if len(chosen) == number for text in chosen]  # fmt: skip
    raise SystemExit(f"{full} authors have {number} such comments; {authors} are needed")


@dataclass(frozen=True)
class World:
    """What all trainings of a study share.

    Attributes:
        folder: of all files.
        model: folder of the model.
        rows: token ids of each training row.
        users: the author of each row.
        held_out: comments of authors that no training reads.
    """

    study: Study
    folder: Path
    model: Path
    rows: list[list[int]]
    users: list[str]
    held_out: Corpus

    @classmethod
    def of(cls, run: Run, study: Study, folder: Path) -> "World":
        """Comments with canaries among them, planted once."""
        from datasets import Dataset

        texts = short_comments(run, study.authors + study.held_out, study.comments)
        size = study.comments * study.authors
        read, held_out = texts[:size], texts[size:]
        model, canaries = run.options.model or small_model(run), folder / "canaries"
        if not canaries.exists():
            plant(
                Dataset.from_dict({"text": [text for _, text in read]}),
                out=canaries,
                coin_flip=study.coins,
                copies=study.copies,
                canary_kind=study.kind,
                length=5,
                vocabulary=model,
            )
        planted = [json.loads(line)["text"] for line in (canaries / "corpus.jsonl").open()]
        positions = set(Manifest.load(canaries / "manifest.json").copy_positions)
        names = iter([name for name, _ in read])
        users = [
            f"canary {text}" if n in positions else next(names) for n, text in enumerate(planted)
        ]
        tokenizer = read_tokenizer(model)
        end = tokenizer.eos_token_id
        ids = tokenizer(planted, add_special_tokens=False)["input_ids"]
        rows = [[end, *row, end] for row in ids]
        return cls(study, folder, model, rows, users, Corpus.from_texts([t for _, t in held_out]))

    def network(self) -> Any:
        """The model before any training."""
        return AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)

    @cached_property
    def vocabulary(self) -> SubwordVocabulary:
        return SubwordVocabulary(read_tokenizer(self.model))

    @cached_property
    def canaries(self) -> tuple[Canary, ...]:
        """Planted ones and controls, with the model's token ids."""
        return load_canaries(self.folder / "canaries", self.vocabulary)[1]

    @cached_property
    def candidates(self) -> list[str] | None:
        """All phrases that a canary could have been; None: random words."""
        if self.study.kind == "words":
            return None
        phrases = Corpus.from_texts([canary.phrase for canary in self.canaries])
        return repeated_tokens(phrases, self.vocabulary, number=REFERENCES, length=5, seed=[1])

    @cached_property
    def scores_before(self) -> list[float]:
        """Log-probabilities of the canaries before any training."""
        base = HuggingFaceLanguageModel(self.network(), self.vocabulary)
        return canary_scores(base, self.canaries).tolist()

    def measure(self, folder: Path, arm: str) -> MeasuredTraining:
        """Exposure, measured epsilon, perplexity, guarantee and cost of a training."""
        from peft import PeftModel

        merged = PeftModel.from_pretrained(self.network(), folder).merge_and_unload()
        model = HuggingFaceLanguageModel(merged, self.vocabulary)
        exposure = canary_exposure(
            model, self.canaries, seed=0, references=REFERENCES, candidates=self.candidates
        )
        claim = guarantee_of(folder) if EPSILONS[arm] else None
        audit = audit_canaries(
            model,
            self.canaries,
            delta=DELTA,
            reference=self.scores_before,
            claimed=None if claim is None else claim.epsilon,  # of the author of all copies
            claimed_copies=self.study.copies,
        )
        return MeasuredTraining(
            name=arm,
            defence="dp-sgd" if EPSILONS[arm] else "none",
            scores=score_documents(model, encode(self.held_out, self.vocabulary)),
            canaries=exposure.canaries,
            audit=audit,
            guarantee=claim,
            cost=json.loads((folder / "cost.json").read_text()),
        )


def small_model(run: Run) -> Path:
    """A folder with a small random Llama."""
    texts = [text for _, text in short_comments(run, 40, 2)]
    shape = {"width": 16, "inner": 32, "layers": 1, "heads": 2}
    return new_llama(run.folder / "small", texts, 400, **shape)


# Trainings ---------------------------------------------------------------------------------------


def trained(world: World, arm: str, seed: int) -> Path:
    """The folder of a training's adapter, made unless it exists."""
    folder = world.folder / "trainings" / f"{arm}-{seed}"
    if not (folder / "cost.json").exists():
        trainer, cost = train(world, EPSILONS[arm], seed)
        trainer.save_model(folder)
        (folder / "cost.json").write_text(json.dumps(cost))
        log(f"{arm}, seed {seed}: {cost['seconds']:.0f} s")
    return folder


def train(world: World, epsilon: float | None, seed: int) -> tuple[Any, dict[str, float]]:
    """(the trainer, its cost)."""
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    from vestige.integrations.private_trainer import PrivateTrainer

    study, users = world.study, len(set(world.users))
    torch.manual_seed(seed)
    network = world.network()
    targets = study.targets if isinstance(study.targets, str) else list(study.targets)
    lora = {"lora_alpha": 2 * RANK, "target_modules": targets, "task_type": None}
    # without privacy: as many rows as the authors of a private step have on average
    rows_of_batch = round(study.batch * len(world.rows) / users)
    arguments = TrainingArguments(
        world.folder / "trainer",
        max_steps=study.steps,
        per_device_train_batch_size=study.batch if epsilon else rows_of_batch,
        learning_rate=study.private_rate if epsilon else RATE,
        lr_scheduler_type="constant",
        bf16=study.bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    data = Dataset.from_dict({"input_ids": world.rows, "author": world.users})
    settings: dict[str, Any] = {"data_collator": collate, "train_dataset": data}
    if epsilon:
        privacy = DPSGD(epsilon=epsilon, delta=DELTA, unit="user", max_grad_norm=1.0)
        settings |= {"privacy": privacy, "user_column": "author"}
    trainer_class = PrivateTrainer if epsilon else Trainer
    trainer = trainer_class(with_lora(network, RANK, **lora), arguments, **settings)
    started = time.perf_counter()
    trainer.train()
    seconds, epochs = time.perf_counter() - started, study.steps * study.batch / users
    tokens = round(epochs * sum(map(len, world.rows)))
    return trainer, {"steps": study.steps, "tokens": tokens, "epoch": epochs, "seconds": seconds}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A padded batch."""
    return inputs_of(padded([row["input_ids"] for row in rows]))


# Measurements ------------------------------------------------------------------------------------


def guarantee_of(folder: Path) -> Guarantee:
    """The guarantee in the ledger of a private adapter."""
    file = folder / "privacy.json"
    [entry] = [entry for entry in from_json(file.read_bytes(), where=file) if entry.unit]
    claim = Guarantee.of({**asdict(entry), "steps": entry.steps_planned})
    assert claim is not None
    return claim


def utility(name: str, run: Run) -> list[Row]:
    """Train what does not exist, measure and compare."""
    folder, times = run.folder / name, run.times(3)
    world = World.of(run, run.size(STUDIES[name], QUICK), folder)
    arms = run.size(list(EPSILONS), ["none", "eps8"])
    adapters = {(arm, seed): trained(world, arm, seed) for seed in range(times) for arm in arms}
    by_arm = {
        arm: [world.measure(adapters[arm, seed], arm) for seed in range(times)] for arm in arms
    }
    comparison = folder / "comparison"
    shutil.rmtree(comparison, ignore_errors=True)  # of fewer trainings
    trainings = [training for group in by_arm.values() for training in group]
    compare_defences(trainings, baseline="none").save(comparison)
    return [row_of(arm, group) for arm, group in by_arm.items()]


def row_of(arm: str, trainings: list[MeasuredTraining]) -> Row:
    """The figures of each training of an arm."""
    claim = trainings[0].guarantee
    planted, controls = (
        [training.bits("exposure", planted=kind) for training in trainings]
        for kind in (True, False)
    )
    audits = [training.audit for training in trainings if training.audit]
    mechanism = None if claim is None else claim.mechanism
    return {
        "arm": arm,
        "epsilon": None if claim is None else claim.epsilon,
        "noise": None if mechanism is None else mechanism.noise_multiplier,
        "perplexity": [SeedGroup((training,)).perplexity for training in trainings],
        "exposure, planted": [float(np.mean(bits)) for bits in planted],
        "controls": [float(np.mean(bits)) for bits in controls],
        "AUC": [audit.separation.value for audit in audits],
        "measured epsilon": [audit.one_run.epsilon for audit in audits],
        "seconds": [training.cost["seconds"] for training in trainings],
    }


def options(parser: Any) -> None:
    """The model."""
    parser.add_argument("--model", type=Path, help="a folder; without it a small random Llama")


PARTS = {name: partial(utility, name) for name in STUDIES}

if __name__ == "__main__":
    main("dp_utility", __doc__, PARTS, options)
