"""memaudit and Vestige on the same trainings: what each notices, and what each claims wrongly.

memaudit 0.2.0 (Apache-2.0) plants canaries and audits a fine-tune by them, as `LeakageCallback`
does. It is no dependency: `pip install --no-deps memaudit==0.2.0`. A GPT-2 of two layers learns 200
beginnings of paragraphs of WikiText-2, with 16 canaries of each tool.

- `repeated`: both callbacks in one training, each canary 1, 4 and 16 times in the text; then
  `membership` of memaudit's canaries.
- `null`: trainings without any canary. Canaries, secrets and rows that nobody read: whatever is
  claimed is a false alarm. Another reference is lines of films.
- `own`: fifteen secrets of the user's sixteen times in the text, fifteen nowhere, canaries once.
- `private`: sixteen copies, learned by a LoRA adapter, with DP-SGD at epsilon 8 and without.
- `mistakes`: trainings in which canaries cannot be learned: left out, cut off, masked, packed.

    VESTIGE_DATA=corpora python benchmarks/memaudit_comparison.py [PART ...] --rows FILE [--times 5]

memaudit writes a rate with an interval and no verdict. `strict`: the interval lies above the 1 % of
false positives that its threshold is set for. `leaky`: its own recommendations say so, at a rate of
10 % or where any canary comes back.
"""

import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from exposure_verdicts import drawn_secrets, plain
from harness import Row, Run, main, rate
from memaudit_world import Planted, World, quiet, watched, world_of

import vestige as vg
from vestige.claims import LEAK
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import auc

FALSE_POSITIVES, LEAKY, REAL = 0.01, 0.10, 64
"""Of memaudit's threshold; the rate that its recommendations call leaky; rows of each side that it
compares."""
SCORES = ("log-ratio", "min-k-plus")
COPIES, SAID, EPSILON = (1, 4, 16), 16, 8.0
BLOCK = 64
"""Tokens of packed blocks, of `mistakes`."""

# Answers -----------------------------------------------------------------------------------------


def claims(report: Mapping[str, Any]) -> Row:
    """memaudit's membership figures, with two readings of them as yes or no."""
    own, said = report["membership"], report["regurgitation"]["overall"]["n_regurgitated"]
    return {
        "detected": own["n_detected"], "of": own["n_members"], "auc": own["auc"],
        "strict": bool(own["exploratory_ci_low"] > FALSE_POSITIVES),
        "leaky": bool(own["exploratory_tpr"] >= LEAKY or said > 0),
    }  # fmt: skip


def leakage(found: Any) -> Row:
    """Vestige's verdict of planted canaries, and how many stand alone at memaudit's rate."""
    told = found.summary() if callable(found.summary) else found.summary
    alone: dict[bool, list[bool]] = {True: [], False: []}
    for row in found.rows() if callable(found.rows) else found.rows:
        alone[row["copies"] > 0].append(row["rank"] / (row["references"] + 1) <= FALSE_POSITIVES)
    return {
        "alarm": told["verdict"] == LEAK,
        "exposure": told["exposure_planted"],
        "exposure of controls": told["exposure_controls"],
        "detected": sum(alone[True]), "of": len(alone[True]),
        "detected controls": sum(alone[False]), "controls": len(alone[False]),
    }  # fmt: skip


def memaudits(
    world: World, network: Any, manifest: Mapping[str, Any], texts: Sequence[str],
    others: Sequence[str], *, generate: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """memaudit's report on a full fine-tune of the base."""
    from memaudit import run_audit

    sides = {"dataset": texts, "held_out": others}
    return dict(
        run_audit(
            network, world.tokenizer, dict(manifest), ref=copy.deepcopy(world.base),
            real_sample=REAL, skip_generation=not generate,
            **{name: [{"text": text} for text in side] for name, side in sides.items()},
        )
    )  # fmt: skip


def texts_alarm(report: Mapping[str, Any]) -> Row:
    """memaudit's test of a sample of the training text against other texts."""
    p = report["real_records"]["set_level"]["p_value"]
    return {"alarm": None if p is None else p <= 0.05}


def membership(
    world: World, network: Any, own: Sequence[str], others: Sequence[str], seed: int,
    score: str = "log-ratio",
) -> Row:  # fmt: skip
    """`membership` with the base, and texts above memaudit's threshold."""
    found = vg.membership(
        world.asked(network), texts=Corpus.from_texts(own), reference=Corpus.from_texts(others),
        base=world.asked(world.base), score=score, seed=seed,
    )  # fmt: skip
    scores = [
        np.array([row["score"] for row in found.rows if row["kind"] == kind])
        for kind in ("audited", "reference")
    ]
    threshold = np.quantile(scores[1], 1 - FALSE_POSITIVES, method="higher")  # memaudit's rule
    return {
        "alarm": found.verdict == LEAK, "named": found.summary["named"],
        "at least": found.summary["at_least"], "auc": auc(*scores).value,
        "detected": int((scores[0] >= threshold).sum()), "of": len(scores[0]),
    }  # fmt: skip


def known_secrets(run: Run, asked: Any, listed: Sequence[tuple[str, str, bool]], seed: int) -> Row:
    """`exposure` of secrets, those that were said and those that were not."""
    lines = [line for _, line, _ in listed]
    found = vg.exposure(asked, lines, references=run.size(600, 100), seed=seed)
    flags = [(row["found"], said) for row, (_, _, said) in zip(found.rows, listed, strict=True)]
    return {
        "alarm": found.verdict == LEAK,
        "found": sum(one for one, said in flags if said), "said": sum(s for _, s in flags),
        "found unsaid": sum(one for one, said in flags if not said),
        "unsaid": sum(not said for _, said in flags),
    }  # fmt: skip


# Parts -------------------------------------------------------------------------------------------

Answers = dict[str, Row]


def repeated(run: Run) -> list[Row]:
    """By copies of each canary."""
    world = world_of(run)

    def training(copies: int, seed: int) -> Answers:
        planted = Planted.of(world, seed, copies)
        began = time.perf_counter()
        network, ours, theirs = watched(world, planted, seed)
        told = {
            "memaudit": {**claims(theirs.report), "seconds": time.perf_counter() - began},
            "vestige": leakage(ours.snapshots[-1].exposure),
        }
        sides = planted.records(included=True), planted.records(included=False)
        for score in SCORES:
            told[f"vestige membership, {score}"] = membership(world, network, *sides, seed, score)
        return told

    return [
        {"copies": copies, **row}
        for copies in run.size(COPIES, (16,))
        for row in tallied(run, f"repeated, {copies}", partial(training, copies), 8)
    ]


def null(run: Run) -> list[Row]:
    """What is claimed of what nobody read."""
    world = world_of(run)

    def training(seed: int) -> Answers:
        planted = Planted.of(world, seed, 4)
        network = world.trained(planted.own, seed)
        half = len(planted.others) // 2
        first, second = planted.others[:half], planted.others[half:]
        strange = random.Random(seed).sample(list(world.elsewhere), half)
        ask = partial(memaudits, world, network, planted.manifest, first)
        report, shifted = ask(second), ask(strange, generate=False)
        asked = world.asked(network)
        sides = planted.records(included=True), planted.records(included=False)
        unread = [(kind, line, False) for kind, line, _ in drawn_secrets(seed)]
        exposed = vg.exposure(asked, planted.place, references=run.size(256, 100), seed=seed)
        told = {
            "memaudit, canaries": claims(report),
            "memaudit, rows": texts_alarm(report),
            "memaudit, rows beside films": texts_alarm(shifted),
            "vestige, canaries": leakage(exposed),
            "vestige, secrets": known_secrets(run, asked, unread, seed),
            "vestige, rows": membership(world, network, first, second, seed),
            "vestige, rows beside films": membership(world, network, first, strange, seed),
        }
        for score in SCORES:
            name = f"vestige, memaudit's canaries, {score}"
            told[name] = membership(world, network, *sides, seed, score)
        return told

    return tallied(run, "null", training, 36)


def own(run: Run) -> list[Row]:
    """A user's own secrets."""
    world = world_of(run)

    def training(seed: int) -> Answers:
        listed = drawn_secrets(seed)
        said = [plain(line) for _, line, told in listed if told]
        planted = Planted.of(world, seed, 1, said * SAID)
        network = world.trained(planted.texts, seed)
        report = memaudits(world, network, planted.manifest, planted.texts, planted.others)
        asked = world.asked(network)
        exposed = vg.exposure(asked, planted.place, references=run.size(256, 100), seed=seed)
        return {
            "memaudit, canaries": claims(report),
            "memaudit, rows": texts_alarm(report),
            "vestige, canaries": leakage(exposed),
            "vestige, rows": membership(world, network, planted.own, planted.others, seed),
            "vestige, secrets": known_secrets(run, asked, listed, seed),
        }

    return tallied(run, "own", training, 5)


def private(run: Run) -> list[Row]:
    """With privacy of a row, and without."""
    world = world_of(run)

    def training(epsilon: float | None, seed: int) -> Answers:
        from peft import LoraConfig, get_peft_model
        from transformers import Trainer

        from vestige.integrations.private_trainer import private

        lora = LoraConfig(
            r=8, target_modules=["c_attn", "c_proj", "c_fc"], task_type="CAUSAL_LM",
            fan_in_fan_out=True,
        )  # fmt: skip
        planted = Planted.of(world, seed, SAID)
        how: dict[str, Any] = {"rate": 2e-2, "epochs": run.size(6, 1), "ref": "auto"}
        if epsilon is None:
            how["kind"] = lambda network, *given, **settings: Trainer(
                get_peft_model(network, lora), *given, **settings
            )
        else:
            how |= {"kind": private(Trainer), "peft_config": lora}
            how["privacy"] = vg.DPSGD(epsilon=epsilon)
        _, ours, theirs = watched(world, planted, seed, **how)
        return {"memaudit": claims(theirs.report), "vestige": leakage(ours.snapshots[-1].exposure)}

    return [
        {"epsilon": epsilon, **row}
        for epsilon in (None, EPSILON)
        for row in tallied(run, f"private, {epsilon}", partial(training, epsilon), 4)
    ]


def mistakes(run: Run) -> list[Row]:
    """Whether each tool refuses a training in which canaries cannot be learned."""
    from memaudit.exceptions import MemauditError

    from vestige.errors import VestigeError

    world, rows = world_of(run), []
    planted = Planted.of(world, run.options.seed, 4)
    for name, data in spoiled(world, planted, run.size(8, 4)).items():
        for tool, refusal in (("memaudit", MemauditError), ("vestige", VestigeError)):
            says = ""
            try:
                alone(world, planted, data, tool, run.options.seed)
            except refusal as error:
                says = str(error)
            rows.append({"mistake": name, "tool": tool, "refused": bool(says), "says": says})
    return rows


def spoiled(world: World, planted: Planted, short: int) -> dict[str, Any]:
    """Data sets of a training by its mistake; the first has none, and one has short rows."""
    from datasets import Dataset

    data = world.encoded(planted.texts)
    ids = data["input_ids"]
    canaries = Manifest.load(planted.place / "manifest.json").canaries
    known = [canary.phrase for canary in canaries] + planted.records(included=True)
    labels = [
        [-100] * len(row) if any(phrase in text for phrase in known) else row
        for text, row in zip(planted.texts, ids, strict=True)
    ]
    every = [token for row in ids for token in row]
    blocks = [every[at : at + BLOCK] for at in range(0, len(every) - BLOCK, BLOCK)]
    return {
        "none": data,
        "trained on the text without canaries": world.encoded(planted.own),
        f"rows cut to {short} tokens": Dataset.from_dict({"input_ids": [r[:short] for r in ids]}),
        "canaries left out of the loss": data.add_column("labels", labels),
        f"rows packed into blocks of {BLOCK}": Dataset.from_dict({"input_ids": blocks}),
    }


def alone(world: World, planted: Planted, data: Any, tool: str, seed: int) -> None:
    """A training that one tool watches."""
    from memaudit import MemorizationAuditCallback
    from transformers import DataCollatorForSeq2Seq

    from vestige.integrations.leakage_callback import LeakageCallback

    settings = {}
    if "labels" in data.column_names:
        settings["data_collator"] = DataCollatorForSeq2Seq(world.tokenizer)
    trainer = world.trainer(copy.deepcopy(world.base), data, seed=seed, **settings)
    if tool == "vestige":
        callback = LeakageCallback(planted.place, trainer, seed=seed)
    else:
        callback = MemorizationAuditCallback(
            trainer=trainer, manifest=dict(planted.manifest), ref=copy.deepcopy(world.base),
            real_sample=0, skip_generation=True,
        )  # fmt: skip
    trainer.add_callback(callback)
    with quiet():
        trainer.train()


# Counts ------------------------------------------------------------------------------------------

COUNTS = (
    ("detected", "of"), ("detected controls", "controls"), ("found", "said"),
    ("found unsaid", "unsaid"),
)  # fmt: skip
"""Parts and wholes that are summed over trainings."""
FLAGS = ("alarm", "strict", "leaky")


def tallied(run: Run, case: str, training: Callable[[int], Answers], times: int) -> list[Row]:
    """A row a question: yeses of trainings, canaries or secrets found, medians of the rest."""
    first = run.options.seed
    told = run.draw(case, training, range(first, first + run.times(times)))
    rows = []
    for question in told[0]:
        own, row = [answers[question] for answers in told], Row(asked=question)
        for flag in FLAGS:
            answers = [one[flag] for one in own if one.get(flag) is not None]
            if answers:
                row[flag] = rate(sum(answers), len(answers))
        sums = Counter[str]()
        for one in own:
            sums.update({name: one.get(name, 0) for pair in COUNTS for name in pair})
        row |= {part: rate(sums[part], sums[whole]) for part, whole in COUNTS if sums[whole]}
        used = {*FLAGS, *(name for pair in COUNTS for name in pair)}
        row |= {
            name: float(np.median([one[name] for one in own if one[name] is not None]))
            for name in own[0].keys() - used
            if any(one[name] is not None for one in own)
        }
        rows.append(row)
    return rows


def options(parser: Any) -> None:
    """The first seed."""
    parser.add_argument("--seed", type=int, default=0, help="of the first training")


PARTS = {"repeated": repeated, "null": null, "own": own, "private": private, "mistakes": mistakes}

if __name__ == "__main__":
    main("memaudit_comparison", __doc__, PARTS, options)
