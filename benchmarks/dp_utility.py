"""What privacy costs a LoRA fine-tune in utility, and what it buys.

A causal model (`--model FOLDER`) gets a LoRA adapter on short comments of Reddit, some of each
author. Among the authors are coin-flip canaries: each says one phrase several times. The unit is
the author. Trained are plain fine-tuning and private ones by `PrivateTrainer` at several epsilons
(`--arms`), with the same canaries. Of every training: perplexity on comments of other authors,
exposure of planted canaries and controls, measured epsilon; means over `--times` trainings.

    VESTIGE_DATA=corpora python benchmarks/dp_utility.py --model SMOLLM2 --work DIR

Trainings in DIR are not repeated; `vestige report DIR/comparison` compares them.
"""

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import invented
from harness import Row, Run, log, main
from networks import llama, padded
from transformers import AutoModelForCausalLM

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.groups import SeedGroup
from vestige.audits.comparison.measurements import Guarantee, MeasuredTraining
from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.exposure.epsilon import audit_canaries
from vestige.data.canaries.coins import repeated_tokens
from vestige.data.canaries.texts import Canary, Manifest, load_canaries
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.formats.dialogue import read_reddit
from vestige.data.subwords import SubwordVocabulary, read_tokenizer
from vestige.defences.methods.private import DPSGD
from vestige.integrations.planting import plant
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.prefix import canary_scores
from vestige.privacy.ledger import from_json
from vestige.training.evaluate import score_documents

DELTA, REFERENCES = 1e-4, 256
KINDS = ("repeated-token", "words")
TARGETS: dict[str, str | list[str]] = {"attention": ["q_proj", "v_proj"], "all": "all-linear"}


def private(epsilon: float, clip: float = 1.0) -> DPSGD:
    """The mechanism of an arm."""
    return DPSGD(epsilon=epsilon, delta=DELTA, unit="user", max_grad_norm=clip)


ARMS: dict[str, DPSGD | None] = {
    "none": None,
    "eps8": private(8),
    "eps3": private(3),
    "eps1": private(1),
    "eps8-clip50": private(8, clip=50.0),
}


# Texts -------------------------------------------------------------------------------------------


def short_comments(run: Run, authors: int, each: int) -> list[tuple[str, str]]:
    """(author, comment of 3 to 8 words), `each` of every author, in an order of their own."""
    if run.quick:
        texts = invented(authors * each, seed=3, words=(3, 8))
        return [(f"author {place // each}", text) for place, text in enumerate(texts)]
    corpus = read_reddit(run.data / "reddit_college")
    texts, names = list(corpus), corpus.users or []
    found: dict[str, list[str]] = {}
    full = 0
    for place in np.random.default_rng(0).permutation(len(texts)):
        text = " ".join(texts[place].split())
        own = found.setdefault(names[place], [])
        if 3 <= len(text.split()) <= 8 and "http" not in text and len(own) < each:
            own.append(text)
            full += len(own) == each
        if full == authors:
            return [(name, t) for name, own in found.items() if len(own) == each for t in own]
    raise SystemExit(f"{full} authors have {each} such comments; {authors} are needed")


@dataclass(frozen=True)
class World:
    """What all trainings of a comparison share.

    Attributes:
        run: with the options.
        model: folder of the model.
        canaries: folder of the planting.
        rows: token ids of each training row.
        users: the author of each row.
        held: comments of authors that no training reads.
    """

    run: Run
    model: Path
    canaries: Path
    rows: list[list[int]]
    users: list[str]
    held: Corpus

    @classmethod
    def of(cls, run: Run) -> "World":
        """Comments with canaries among them, planted once."""
        from datasets import Dataset

        given = run.options
        authors, held = given.authors or run.size(1000, 30), given.held or run.size(100, 10)
        every = short_comments(run, authors + held, given.each)
        kept = given.each * authors
        read, held_out = every[:kept], every[kept:]
        kind = canary_kind(run)
        model, canaries = given.model or small_model(run), run.folder / "canaries"
        if not canaries.exists():
            plant(
                Dataset.from_dict({"text": [text for _, text in read]}),
                out=canaries,
                coin_flip=given.canaries or run.size(100, 12),
                copies=given.copies,
                canary_kind=kind,
                length=given.length,
                vocabulary=model,
            )
        texts = [json.loads(line)["text"] for line in (canaries / "corpus.jsonl").open()]
        places = set(Manifest.load(canaries / "manifest.json").copy_positions)
        names = iter([name for name, _ in read])
        users = [f"canary {text}" if n in places else next(names) for n, text in enumerate(texts)]
        tokenizer = read_tokenizer(model)
        end = tokenizer.eos_token_id
        rows = [[end, *row, end] for row in tokenizer(texts, add_special_tokens=False)["input_ids"]]
        return cls(run, model, canaries, rows, users, Corpus.from_texts([t for _, t in held_out]))


def canary_kind(run: Run) -> str:
    """Of all canaries; the small model has too few unused tokens for repeated ones."""
    return str(run.options.kind or run.size("repeated-token", "words"))


def small_model(run: Run) -> Path:
    """A folder with a small random Llama."""
    folder = run.folder / "small"
    if not folder.exists():
        texts = [text for _, text in short_comments(run, 40, 2)]
        vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=400)
        shape = {"width": 16, "inner": 32, "layers": 1, "heads": 2}
        llama(vocabulary, **shape).network.save_pretrained(folder)
        vocabulary.save(folder)
    return folder


# Trainings ---------------------------------------------------------------------------------------


def made(world: World, arm: str, seed: int) -> Path:
    """The folder of a training's adapter, made where it is missing."""
    folder = world.run.folder / "trainings" / f"{arm}-{seed}"
    if not (folder / "cost.json").exists():
        trainer, cost = trained(world, ARMS[arm], seed)
        trainer.save_model(folder)
        (folder / "cost.json").write_text(json.dumps(cost))
        log(f"{arm}, seed {seed}: {cost['seconds']:.0f} s")
    return folder


def trained(world: World, privacy: DPSGD | None, seed: int) -> tuple[Any, dict[str, float]]:
    """(the trainer, what its training took)."""
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments

    from vestige.integrations.private_trainer import PrivateTrainer

    given, users = world.run.options, len(set(world.users))
    steps, batch = given.steps or world.run.size(32, 2), given.batch_size
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_pretrained(world.model, dtype=torch.float32)
    lora = LoraConfig(
        r=given.rank, lora_alpha=2 * given.rank, target_modules=TARGETS[given.targets]
    )
    arguments = TrainingArguments(
        world.run.folder / "trainer",
        max_steps=steps,
        # without privacy: as many rows as the authors of a private step have on average
        per_device_train_batch_size=batch if privacy else round(batch * len(world.rows) / users),
        learning_rate=given.private_rate if privacy else given.rate,
        lr_scheduler_type="constant",
        bf16=given.bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    data = Dataset.from_dict({"input_ids": world.rows, "author": world.users})
    settings: dict[str, Any] = {"data_collator": collated, "train_dataset": data}
    if privacy:
        settings |= {"privacy": privacy, "user_column": "author"}
    kind = PrivateTrainer if privacy else Trainer
    trainer, began = kind(get_peft_model(network, lora), arguments, **settings), time.perf_counter()
    trainer.train()
    passes = steps * batch / users
    tokens = round(passes * sum(map(len, world.rows)))
    seconds = time.perf_counter() - began
    return trainer, {"steps": steps, "tokens": tokens, "epoch": passes, "seconds": seconds}


def collated(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows to a batch; padding counts for nothing."""
    labels = padded([row["input_ids"] for row in rows])
    seen = (labels >= 0).long()
    return {"input_ids": labels.clamp(min=0), "attention_mask": seen, "labels": labels}


# Measurements ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Questions:
    """What every model is asked.

    Attributes:
        world: of the trainings.
        vocabulary: of the model.
        canaries: planted ones and controls, with the model's ids.
        candidates: what the canaries could have been; None: random words.
        test: held-out comments.
        before: log-probabilities of the canaries before any training.
    """

    world: World
    vocabulary: SubwordVocabulary
    canaries: tuple[Canary, ...]
    candidates: list[str] | None
    test: EncodedCorpus
    before: list[float]

    @classmethod
    def of(cls, world: World) -> "Questions":
        """Those of a comparison."""
        network = AutoModelForCausalLM.from_pretrained(world.model, dtype=torch.float32)
        vocabulary, given = SubwordVocabulary(read_tokenizer(world.model)), world.run.options
        base = HuggingFaceLanguageModel(network, vocabulary)
        _, canaries = load_canaries(world.canaries, vocabulary)
        candidates = None
        if canary_kind(world.run) == "repeated-token":
            phrases = Corpus.from_texts([canary.phrase for canary in canaries])
            candidates = repeated_tokens(
                phrases, vocabulary, number=REFERENCES, length=given.length, seed=[1]
            )
        before = canary_scores(base, canaries).tolist()
        test = encode(world.held, vocabulary)
        return cls(world, vocabulary, canaries, candidates, test, before)

    def ask(self, folder: Path, arm: str) -> MeasuredTraining:
        """What a training gives away, predicts, promises and took."""
        from peft import PeftModel

        network = AutoModelForCausalLM.from_pretrained(self.world.model, dtype=torch.float32)
        merged = PeftModel.from_pretrained(network, folder).merge_and_unload()
        model = HuggingFaceLanguageModel(merged, self.vocabulary)
        found = canary_exposure(
            model, self.canaries, seed=0, references=REFERENCES, candidates=self.candidates
        )
        claim = guarantee_of(folder) if ARMS[arm] else None
        audit = audit_canaries(
            model,
            self.canaries,
            delta=DELTA,
            reference=self.before,
            claimed=None if claim is None else claim.epsilon,  # of an author, who says it all
            claimed_copies=self.world.run.options.copies,
        )
        return MeasuredTraining(
            name=arm,
            defence="dp-sgd" if ARMS[arm] else "none",
            scores=score_documents(model, self.test),
            canaries=found.canaries,
            audit=audit,
            guarantee=claim,
            cost=json.loads((folder / "cost.json").read_text()),
        )


def guarantee_of(folder: Path) -> Guarantee:
    """What the ledger beside a private adapter promises."""
    file = folder / "privacy.json"
    [entry] = [one for one in from_json(file.read_bytes(), where=file) if one.unit]
    claim = Guarantee.of({**asdict(entry), "steps": entry.steps_planned})
    assert claim is not None
    return claim


def utility(run: Run) -> list[Row]:
    """Train what is missing, measure, compare."""
    world, times = World.of(run), run.times(3)
    arms = run.options.arms or run.size(list(ARMS), ["none", "eps8"])
    for seed in range(times):
        for arm in arms:
            made(world, arm, seed)
    questions = Questions.of(world)
    found = {
        arm: [questions.ask(made(world, arm, seed), arm) for seed in range(times)] for arm in arms
    }
    if "none" in found and len(found) > 1:
        every = [one for own in found.values() for one in own]
        comparison = run.folder / "comparison"
        shutil.rmtree(comparison, ignore_errors=True)  # of fewer trainings
        compare_defences(every, baseline="none").save(comparison)
    return [row_of(arm, own) for arm, own in found.items()]


def row_of(arm: str, every: list[MeasuredTraining]) -> Row:
    """Each of an arm's trainings."""
    claim = every[0].guarantee
    planted, never = (
        [one.bits("exposure", planted=kind) for one in every if one.canaries]
        for kind in (True, False)
    )
    audits = [one.audit for one in every if one.audit]
    mechanism = None if claim is None else claim.mechanism
    return {
        "arm": arm,
        "epsilon": None if claim is None else claim.epsilon,
        "noise": None if mechanism is None else mechanism.noise_multiplier,
        "perplexity": [SeedGroup((one,)).perplexity for one in every],
        "exposure, planted": [float(np.mean(bits)) for bits in planted],
        "controls": [float(np.mean(bits)) for bits in never],
        "AUC": [audit.separation.value for audit in audits],
        "measured epsilon": [audit.one_run.epsilon for audit in audits],
        "seconds": [one.cost["seconds"] for one in every],
    }


def options(parser: Any) -> None:
    """Of the trainings and canaries."""
    parser.add_argument("--model", type=Path, help="a folder; without it a small random Llama")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS))
    parser.add_argument("--authors", type=int)
    parser.add_argument("--held", type=int, help="authors whose comments are held out")
    parser.add_argument("--each", type=int, default=2, help="comments of an author")
    parser.add_argument("--canaries", type=int)
    parser.add_argument("--kind", choices=KINDS, help="of canaries [repeated-token]")
    parser.add_argument("--copies", type=int, default=8, help="of a planted canary")
    parser.add_argument("--length", type=int, default=5, help="tokens or words of a canary")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch-size", type=int, default=32, help="authors")
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--targets", default="attention", choices=list(TARGETS))
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate without privacy")
    parser.add_argument("--private-rate", type=float, default=2e-3)
    parser.add_argument("--float32", dest="bf16", action="store_false")


PARTS = {"utility": utility}

if __name__ == "__main__":
    main("dp_utility", __doc__, PARTS, options)
