"""What does privacy cost a LoRA fine-tune in utility, and what does it buy?

A causal model gets a LoRA adapter on short comments from Reddit, some of each author. Among the
authors are coin-flip canaries: each says one phrase several times, of words at random, of one token
again and again, or that the model before the training wrote. The unit is the author. Trained are:
plain fine-tuning, and private ones by `PrivateTrainer` at several epsilons, and with a clipping
norm that nobody tuned. Of every training: perplexity on comments of other authors, exposure of the
planted canaries, measured epsilon.

    VESTIGE_DATA=corpora python benchmarks/private_utility.py MODEL --out DIR [--seeds 3]
        [--arms none eps8 ...] [--authors 1000] [--canaries 100] [--steps 32]

A training that is in DIR already is not made again, and is measured again. A JSON line an arm is
printed, and the trainings are compared in DIR/comparison: `vestige report DIR/comparison` shows it.
"""

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.groups import Group
from vestige.audits.comparison.measurements import Guarantee, MeasuredTraining
from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.exposure.epsilon import audit_canaries
from vestige.data.canaries.coins import token_phrases
from vestige.data.canaries.texts import Canary, Manifest, load_canaries
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.formats.dialogue import read_reddit
from vestige.data.subwords import SubwordVocabulary
from vestige.defences.methods.private import DPSGD
from vestige.models.behind import canary_scores
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.privacy.ledger import from_json
from vestige.training.evaluate import score_documents

DELTA = 1e-4
REFERENCES = 256
WORDS = range(3, 9)
CLIP = 1.0
TOOK = "took.json"
KINDS = ["repeated-token", "words", "sampled"]
TARGETS: dict[str, str | list[str]] = {"attention": ["q_proj", "v_proj"], "all": "all-linear"}


def private(epsilon: float, **settings: Any) -> DPSGD:
    """The mechanism of an arm."""
    return DPSGD(epsilon=epsilon, delta=DELTA, unit="user", **{"max_grad_norm": CLIP, **settings})


ARMS: dict[str, DPSGD | None] = {
    "none": None,
    "eps8": private(8),
    "eps3": private(3),
    "eps1": private(1),
    "eps8-clip50": private(8, max_grad_norm=50.0),
}


def comments_of(folder: Path, authors: int, each: int) -> list[tuple[str, str]]:
    """(author, comment of a few words), `each` of every author, in an order of their own."""
    corpus = read_reddit(folder)
    texts, names = list(corpus), corpus.users or []
    found: dict[str, list[str]] = {}
    full = 0
    for place in np.random.default_rng(0).permutation(len(texts)):
        text = " ".join(texts[place].split())
        own = found.setdefault(names[place], [])
        if len(text.split()) in WORDS and "http" not in text and len(own) < each:
            own.append(text)
            full += len(own) == each
        if full == authors:
            return [
                (name, own) for name, every in found.items() if len(every) == each for own in every
            ]
    raise SystemExit(f"{folder} has {full} authors of {each} such comments, {authors} are needed")


@dataclass(frozen=True)
class World:
    """What all trainings of a comparison share.

    Attributes:
        options: of the command.
        canaries: the directory of the planting.
        rows: token ids of each training row.
        users: whose each row is.
        held: comments of authors that no training reads.
    """

    options: argparse.Namespace
    canaries: Path
    rows: list[list[int]]
    users: list[str]
    held: Corpus

    @classmethod
    def of(cls, options: argparse.Namespace) -> "World":
        """Comments with canaries among them, planted once."""
        from datasets import Dataset

        from vestige.integrations.planting import plant

        reddit = Path(os.environ["VESTIGE_DATA"]) / "reddit_college"
        every = comments_of(reddit, options.authors + options.held, options.each)
        kept = options.each * options.authors
        read, held = every[:kept], every[kept:]
        canaries = options.out / "canaries"
        sampler = {"sampled_from": options.model} if options.kind == "sampled" else {}
        if not canaries.exists():
            plant(
                Dataset.from_dict({"text": [text for _, text in read]}),
                out=canaries,
                coin_flip=options.canaries,
                copies=options.copies,
                canary_kind=options.kind,
                length=options.length,
                vocabulary=options.model,
                **sampler,
            )
        texts = [json.loads(line)["text"] for line in (canaries / "corpus.jsonl").open()]
        places = set(Manifest.load(canaries / "manifest.json").places)
        names = iter([name for name, _ in read])
        users = [f"canary {text}" if n in places else next(names) for n, text in enumerate(texts)]
        tokenizer = tokenizer_of(options)
        end = tokenizer.eos_token_id
        rows = [[end, *row, end] for row in tokenizer(texts)["input_ids"]]
        return cls(options, canaries, rows, users, Corpus.from_texts([text for _, text in held]))

    @property
    def rows_at_once(self) -> int:
        """Rows that a step of `batch_size` authors has on average."""
        return round(self.options.batch_size * len(self.rows) / len(set(self.users)))


def tokenizer_of(options: argparse.Namespace) -> Any:
    """The model's."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def trained(world: World, privacy: DPSGD | None, seed: int) -> tuple[Any, dict[str, float], Any]:
    """(the trainer, what its training took, a log of losses and norms)."""
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments

    from vestige.integrations.private_trainer import PrivateTrainer

    options = world.options
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    lora = LoraConfig(
        r=options.rank, lora_alpha=2 * options.rank, target_modules=TARGETS[options.targets]
    )
    model = get_peft_model(model, lora)
    arguments = TrainingArguments(
        options.out / "trainer",
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size if privacy else world.rows_at_once,
        learning_rate=options.private_rate if privacy else options.rate,
        lr_scheduler_type="constant",
        optim="sgd" if options.sgd else "adamw_torch",
        bf16=options.bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        report_to="none",
        logging_steps=4,
        save_strategy="no",
        disable_tqdm=True,
    )
    collate = Padding(tokenizer_of(options).pad_token_id)
    columns = {"input_ids": world.rows, "author": world.users}
    data = Dataset.from_dict(columns)
    kind = PrivateTrainer if privacy else Trainer
    extra = {"privacy": privacy, "user_column": "author"} if privacy else {}
    began = time.perf_counter()
    trainer = kind(model, arguments, data_collator=collate, train_dataset=data, **extra)
    trainer.train()
    seconds = time.perf_counter() - began
    passes = options.steps * options.batch_size / len(set(world.users))
    tokens = round(passes * sum(map(len, world.rows)))
    cost = {"steps": options.steps, "tokens": tokens, "epoch": passes, "seconds": seconds}
    norms = [row for row in trainer.state.log_history if "loss" in row]
    return trainer, cost, norms


@dataclass(frozen=True)
class Padding:
    """Rows to a batch; padding counts for nothing.

    Attributes:
        pad: token id.
    """

    pad: int

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Input ids, attention mask and labels (rows, tokens)."""
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self.pad)
        lengths = torch.tensor([len(one) for one in ids])
        inside = torch.arange(padded.shape[1]) < lengths[:, None]
        return {
            "input_ids": padded,
            "attention_mask": inside.long(),
            "labels": padded.masked_fill(~inside, -100),
        }


def make(world: World, arm: str, seed: int) -> Path:
    """The folder of a training's adapter, made where it is not there."""
    folder: Path = world.options.out / "trainings" / f"{arm}-{seed}"
    if not (folder / TOOK).exists():
        trainer, cost, losses = trained(world, ARMS[arm], seed)
        trainer.save_model(folder)
        (folder / TOOK).write_text(json.dumps({"cost": cost, "log": losses}))
        print(f"{arm} seed {seed}: {cost['seconds']:.0f} s", file=sys.stderr, flush=True)
    return folder


@dataclass(frozen=True)
class Questions:
    """What every model is asked.

    Attributes:
        canaries: planted ones and controls, with the model's ids.
        copies: of a planted canary.
        candidates: what the canaries could have been; None: random words.
        test: held-out comments.
        before: the canaries' log-probabilities under the model before any training.
        model: folder of that model.
        vocabulary: of it.
    """

    canaries: tuple[Canary, ...]
    copies: int
    candidates: list[str] | None
    test: EncodedCorpus
    before: list[float]
    model: Path
    vocabulary: SubwordVocabulary

    @classmethod
    def of(cls, world: World) -> "Questions":
        """Those of a comparison."""
        network = AutoModelForCausalLM.from_pretrained(world.options.model, dtype=torch.float32)
        vocabulary = SubwordVocabulary(tokenizer_of(world.options))
        base = HuggingFaceLanguageModel(network, vocabulary)
        _, canaries = load_canaries(world.canaries, base.vocabulary)
        options, candidates = world.options, None
        if options.kind == "repeated-token":
            phrases = Corpus.from_texts([canary.phrase for canary in canaries])
            candidates = token_phrases(
                "repeated-token",
                phrases,
                vocabulary,
                number=REFERENCES,
                length=options.length,
                seed=[1],
            )
        test = encode(world.held, vocabulary)
        before = canary_scores(base, canaries).tolist()
        copies = options.copies
        return cls(canaries, copies, candidates, test, before, options.model, vocabulary)

    def load(self, folder: Path) -> HuggingFaceLanguageModel:
        """A model with its adapter merged into the weights, which takes half the time to ask."""
        from peft import PeftModel

        network = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        merged = PeftModel.from_pretrained(network, folder).merge_and_unload()
        return HuggingFaceLanguageModel(merged, self.vocabulary)

    def ask(self, folder: Path, arm: str) -> MeasuredTraining:
        """What a training gives away, predicts, promises and took."""
        model = self.load(folder)
        found = canary_exposure(
            model, self.canaries, seed=0, references=REFERENCES, candidates=self.candidates
        )
        claim = claim_of(folder) if ARMS[arm] else None
        audit = audit_canaries(
            model,
            self.canaries,
            delta=DELTA,
            reference=self.before,
            claimed=None if claim is None else claim.epsilon,  # of an author, who says it all
            claimed_copies=self.copies,
        )
        return MeasuredTraining(
            name=arm,
            defence="dp-sgd" if ARMS[arm] else "none",
            scores=score_documents(model, self.test),
            canaries=found.canaries,
            audit=audit,
            guarantee=claim,
            cost=json.loads((folder / TOOK).read_text())["cost"],
        )


def claim_of(folder: Path) -> Guarantee:
    """What the ledger beside a private adapter promises."""
    file = folder / "privacy.json"
    [entry] = [one for one in from_json(file.read_bytes(), where=file) if one.unit]
    claim = Guarantee.of({**asdict(entry), "steps": entry.steps_planned})
    assert claim is not None
    return claim


def row_of(arm: str, every: list[MeasuredTraining]) -> dict[str, Any]:
    """Means over an arm's trainings, and each of them."""
    claim = every[0].guarantee
    planted, never = (
        [one.bits("exposure", planted=kind) for one in every if one.canaries]
        for kind in (True, False)
    )
    audits = [one.audit for one in every if one.audit]
    return {
        "arm": arm,
        "epsilon": None if claim is None else claim.epsilon,
        "noise_multiplier": None
        if not (claim and claim.mechanism)
        else claim.mechanism.noise_multiplier,
        "perplexity": [Group((one,)).perplexity for one in every],
        "exposure": [float(np.mean(bits)) for bits in planted],
        "exposure_controls": [float(np.mean(bits)) for bits in never],
        "auc": [audit.separation.value for audit in audits],
        "epsilon_fair_coins": [audit.one_run.epsilon for audit in audits],
        "seconds": [one.cost["seconds"] for one in every],
    }


def main() -> None:
    """Train, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--authors", type=int, default=1000)
    parser.add_argument("--held", type=int, default=100)
    parser.add_argument("--canaries", type=int, default=100)
    parser.add_argument("--each", type=int, default=2, help="comments of an author")
    parser.add_argument("--kind", default="repeated-token", choices=KINDS)
    parser.add_argument("--copies", type=int, default=8, help="of a planted canary")
    parser.add_argument("--length", type=int, default=5, help="tokens or words of a canary")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32, help="authors")
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--targets", default="attention", choices=list(TARGETS))
    parser.add_argument("--sgd", action="store_true", help="plain steps in place of AdamW's")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate without privacy")
    parser.add_argument("--private-rate", type=float, default=2e-3)
    parser.add_argument("--float32", dest="bf16", action="store_false")
    parser.add_argument("--train-only", action="store_true", help="and measure later")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    world = World.of(options)
    for seed in range(options.seeds):
        for arm in options.arms:
            make(world, arm, seed)
    if options.train_only:
        return
    questions = Questions.of(world)
    found: dict[str, list[MeasuredTraining]] = {}
    for arm in options.arms:
        found[arm] = [questions.ask(make(world, arm, seed), arm) for seed in range(options.seeds)]
        print(json.dumps(row_of(arm, found[arm])), flush=True)
    if "none" in found and len(found) > 1:
        every = [one for own in found.values() for one in own]
        comparison = options.out / "comparison"
        shutil.rmtree(comparison, ignore_errors=True)  # of fewer trainings
        compare_defences(every, baseline="none").save(comparison)


if __name__ == "__main__":
    main()
