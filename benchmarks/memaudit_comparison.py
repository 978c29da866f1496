"""memaudit and Vestige on the same trainings: what each detects, and what each claims wrongly.

memaudit 0.2.0 (Apache-2.0) plants canaries and audits a fine-tune with them, as `LeakageCallback`
does. It is no dependency: `pip install --no-deps memaudit==0.2.0`. A GPT-2 of two layers learns 200
beginnings of paragraphs of WikiText-2, with 16 canaries of each tool.

- `repeated`: both callbacks in one training, each canary 1, 4 and 16 times in the text; then
  `membership` of memaudit's canaries.
- `null`: trainings without any canary. Nobody read the canaries, secrets and rows that are tested,
  so every claim is a false alarm. Another reference is film lines.
- `own`: fifteen secrets of the user 16 times in the text, fifteen nowhere, canaries once.
- `private`: 16 copies, learned by a LoRA adapter, with DP-SGD at epsilon 8 and without.
- `mistakes`: trainings in which canaries cannot be learned: left out, cut off, masked, packed.

    VESTIGE_DATA=corpora python benchmarks/memaudit_comparison.py [PART ...] --rows FILE [--times 5]

memaudit writes a rate with an interval and no verdict. `strict`: the interval is above the 1 % of
false positives of its threshold. `leaky`: its own recommendations say so, at a rate of 10 % or if
it extracts any canary.
"""

import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from exposure_verdicts import plain, sample_secrets
from harness import Row, Run, main, rate
from memaudit_world import Planted, World, quiet, train_with_both, world_of

import vestige as vg
from vestige.claims import LEAK
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import auc

FALSE_POSITIVES, LEAKY, REAL = 0.01, 0.10, 64
"""Of memaudit's threshold; the rate that its recommendations call leaky; rows of each side that it
compares."""
SCORES = ("log-ratio", "min-k-plus")
COPIES, MANY_COPIES, EPSILON = (1, 4, 16), 16, 8.0
BLOCK = 64
"""Tokens of packed blocks, of `mistakes`."""

# Results -----------------------------------------------------------------------------------------


def memaudit_row(report: Mapping[str, Any]) -> Row:
    """memaudit's membership figures, with two readings of them as yes or no."""
    membership = report["membership"]
    extracted = report["regurgitation"]["overall"]["n_regurgitated"]
    return {
        "detected": membership["n_detected"], "of": membership["n_members"],
        "auc": membership["auc"],
        "strict": bool(membership["exploratory_ci_low"] > FALSE_POSITIVES),
        "leaky": bool(membership["exploratory_tpr"] >= LEAKY or extracted > 0),
    }  # fmt: skip


def exposure_row(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Row:
    """Vestige's verdict on planted canaries, and how many are above memaudit's threshold."""
    detected: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows:
        share = row["rank"] / (row["references"] + 1)
        detected[row["copies"] > 0].append(share <= FALSE_POSITIVES)
    return {
        "alarm": summary["verdict"] == LEAK,
        "exposure": summary["exposure_planted"],
        "exposure of controls": summary["exposure_controls"],
        "detected": sum(detected[True]), "of": len(detected[True]),
        "detected controls": sum(detected[False]), "controls": len(detected[False]),
    }  # fmt: skip


def callback_row(callback: Any) -> Row:
    """The last measurement of a `LeakageCallback`."""
    exposure = callback.snapshots[-1].exposure
    return exposure_row(exposure.summary(), exposure.rows())


def run_memaudit(
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


def texts_row(report: Mapping[str, Any]) -> Row:
    """memaudit's test of a sample of the training text against other texts."""
    p = report["real_records"]["set_level"]["p_value"]
    return {"alarm": None if p is None else p <= 0.05}


def membership_row(
    world: World, network: Any, texts: Sequence[str], others: Sequence[str], seed: int,
    score: str = "log-ratio",
) -> Row:  # fmt: skip
    """`membership` with the base, and texts above memaudit's threshold."""
    result = vg.membership(
        world.model(network), texts=Corpus.from_texts(texts), reference=Corpus.from_texts(others),
        base=world.model(world.base), score=score, seed=seed,
    )  # fmt: skip
    audited, reference = (
        np.array([row["score"] for row in result.rows if row["kind"] == kind])
        for kind in ("audited", "reference")
    )
    threshold = np.quantile(reference, 1 - FALSE_POSITIVES, method="higher")  # memaudit's rule
    return {
        "alarm": result.verdict == LEAK, "named": result.summary["named"],
        "at least": result.summary["at_least"], "auc": auc(audited, reference).value,
        "detected": int((audited >= threshold).sum()), "of": len(audited),
    }  # fmt: skip


def canaries_row(run: Run, model: Any, planted: Planted, seed: int) -> Row:
    """`exposure` of the planted canaries."""
    result = vg.exposure(model, planted.folder, references=run.size(256, 100), seed=seed)
    return exposure_row(result.summary, result.rows)


def secrets_row(run: Run, model: Any, secrets: Sequence[tuple[str, str, bool]], seed: int) -> Row:
    """`exposure` of secrets, planted ones and others."""
    lines = [line for _, line, _ in secrets]
    result = vg.exposure(model, lines, references=run.size(600, 100), seed=seed)
    planted, others = (
        [row["found"] for row, (*_, p) in zip(result.rows, secrets, strict=True) if p is kind]
        for kind in (True, False)
    )
    return {
        "alarm": result.verdict == LEAK,
        "found": sum(planted), "said": len(planted),
        "found unsaid": sum(others), "unsaid": len(others),
    }  # fmt: skip


# Parts -------------------------------------------------------------------------------------------

Results = dict[str, Row]


def repeated(run: Run) -> list[Row]:
    """Results by copies of each canary."""
    world = world_of(run)

    def training(copies: int, seed: int) -> Results:
        planted = Planted.of(world, seed, copies)
        started = time.perf_counter()
        network, ours, theirs = train_with_both(world, planted, seed)
        results = {
            "memaudit": {**memaudit_row(theirs.report), "seconds": time.perf_counter() - started},
            "vestige": callback_row(ours),
        }
        return results | canary_memberships("vestige membership", world, network, planted, seed)

    return [
        {"copies": copies, **row}
        for copies in run.size(COPIES, (16,))
        for row in totals(run, f"repeated, {copies}", partial(training, copies), 8)
    ]


def canary_memberships(
    title: str, world: World, network: Any, planted: Planted, seed: int
) -> Results:
    """`membership` of memaudit's canaries by each score."""
    sides = planted.records(included=True), planted.records(included=False)
    return {
        f"{title}, {score}": membership_row(world, network, *sides, seed, score) for score in SCORES
    }


def null(run: Run) -> list[Row]:
    """False alarms."""
    world = world_of(run)

    def training(seed: int) -> Results:
        planted = Planted.of(world, seed, 4)
        network = world.trained(planted.private, seed)
        half = len(planted.others) // 2
        first, second = planted.others[:half], planted.others[half:]
        films = random.Random(seed).sample(list(world.other_source), half)
        audit = partial(run_memaudit, world, network, planted.manifest, first)
        report, with_films = audit(second), audit(films, generate=False)
        model = world.model(network)
        secrets = [(kind, line, False) for kind, line, _ in sample_secrets(seed)]
        results = {
            "memaudit, canaries": memaudit_row(report),
            "memaudit, rows": texts_row(report),
            "memaudit, rows beside films": texts_row(with_films),
            "vestige, canaries": canaries_row(run, model, planted, seed),
            "vestige, secrets": secrets_row(run, model, secrets, seed),
            "vestige, rows": membership_row(world, network, first, second, seed),
            "vestige, rows beside films": membership_row(world, network, first, films, seed),
        }
        title = "vestige, memaudit's canaries"
        return results | canary_memberships(title, world, network, planted, seed)

    return totals(run, "null", training, 36)


def own(run: Run) -> list[Row]:
    """A user's own secrets."""
    world = world_of(run)

    def training(seed: int) -> Results:
        secrets = sample_secrets(seed)
        lines = [plain(line) for _, line, in_text in secrets if in_text]
        planted = Planted.of(world, seed, 1, lines * MANY_COPIES)
        network = world.trained(planted.texts, seed)
        report = run_memaudit(world, network, planted.manifest, planted.texts, planted.others)
        model = world.model(network)
        return {
            "memaudit, canaries": memaudit_row(report),
            "memaudit, rows": texts_row(report),
            "vestige, canaries": canaries_row(run, model, planted, seed),
            "vestige, rows": membership_row(world, network, planted.private, planted.others, seed),
            "vestige, secrets": secrets_row(run, model, secrets, seed),
        }

    return totals(run, "own", training, 5)


def private(run: Run) -> list[Row]:
    """Privacy of a row, and a training without privacy."""
    world = world_of(run)

    def training(epsilon: float | None, seed: int) -> Results:
        from peft import LoraConfig, get_peft_model
        from transformers import Trainer

        from vestige.integrations.private_trainer import private as private_trainer

        lora = LoraConfig(
            r=8, target_modules=["c_attn", "c_proj", "c_fc"], task_type="CAUSAL_LM",
            fan_in_fan_out=True,
        )  # fmt: skip
        planted = Planted.of(world, seed, MANY_COPIES)
        settings: dict[str, Any] = {"rate": 2e-2, "epochs": run.size(6, 1), "ref": "auto"}
        if epsilon is None:
            settings["trainer_class"] = lambda network, *arguments, **options: Trainer(
                get_peft_model(network, lora), *arguments, **options
            )
        else:
            settings |= {"trainer_class": private_trainer(Trainer), "peft_config": lora}
            settings["privacy"] = vg.DPSGD(epsilon=epsilon)
        _, ours, theirs = train_with_both(world, planted, seed, **settings)
        return {"memaudit": memaudit_row(theirs.report), "vestige": callback_row(ours)}

    return [
        {"epsilon": epsilon, **row}
        for epsilon in (None, EPSILON)
        for row in totals(run, f"private, {epsilon}", partial(training, epsilon), 4)
    ]


def mistakes(run: Run) -> list[Row]:
    """Whether each tool refuses a training in which canaries cannot be learned."""
    from memaudit.exceptions import MemauditError

    from vestige.errors import VestigeError

    world, rows = world_of(run), []
    planted = Planted.of(world, run.options.seed, 4)
    for name, data in spoiled_data(world, planted, run.size(8, 4)).items():
        for tool, error_class in (("memaudit", MemauditError), ("vestige", VestigeError)):
            message = ""
            try:
                train_with_one(world, planted, data, tool, run.options.seed)
            except error_class as error:
                message = str(error)
            rows.append({"mistake": name, "tool": tool, "refused": bool(message), "says": message})
    return rows


def spoiled_data(world: World, planted: Planted, short: int) -> dict[str, Any]:
    """Data sets of a training by its mistake; the first has none."""
    from datasets import Dataset

    data = world.encoded(planted.texts)
    ids = data["input_ids"]
    canaries = Manifest.load(planted.folder / "manifest.json").canaries
    phrases = [canary.phrase for canary in canaries] + planted.records(included=True)
    labels = [
        [-100] * len(row) if any(phrase in text for phrase in phrases) else row
        for text, row in zip(planted.texts, ids, strict=True)
    ]
    stream = [token for row in ids for token in row]
    blocks = [stream[start : start + BLOCK] for start in range(0, len(stream) - BLOCK, BLOCK)]
    return {
        "none": data,
        "trained on the text without canaries": world.encoded(planted.private),
        f"rows cut to {short} tokens": Dataset.from_dict({"input_ids": [r[:short] for r in ids]}),
        "canaries left out of the loss": data.add_column("labels", labels),
        f"rows packed into blocks of {BLOCK}": Dataset.from_dict({"input_ids": blocks}),
    }


def train_with_one(world: World, planted: Planted, data: Any, tool: str, seed: int) -> None:
    """A training with the callback of one tool."""
    from memaudit import MemorizationAuditCallback
    from transformers import DataCollatorForSeq2Seq

    from vestige.integrations.leakage_callback import LeakageCallback

    settings = {}
    if "labels" in data.column_names:
        settings["data_collator"] = DataCollatorForSeq2Seq(world.tokenizer)
    trainer = world.trainer(copy.deepcopy(world.base), data, seed=seed, **settings)
    if tool == "vestige":
        callback = LeakageCallback(planted.folder, trainer, seed=seed)
    else:
        callback = MemorizationAuditCallback(
            trainer=trainer, manifest=dict(planted.manifest), ref=copy.deepcopy(world.base),
            real_sample=0, skip_generation=True,
        )  # fmt: skip
    trainer.add_callback(callback)
    with quiet():
        trainer.train()


# Totals ------------------------------------------------------------------------------------------

COUNTS = {
    "detected": "of", "detected controls": "controls", "found": "said", "found unsaid": "unsaid"
}  # fmt: skip
"""Columns that are summed over trainings: a part, and the whole of its rate."""
FLAGS = ("alarm", "strict", "leaky")


def totals(run: Run, case: str, training: Callable[[int], Results], times: int) -> list[Row]:
    """For each method: rates of flags over trainings, rates of counts, medians of other figures."""
    results = run.draw(case, training, run.times(times), first=run.options.seed)
    rows = []
    for method in results[0]:
        columns, row = [result[method] for result in results], Row(asked=method)
        for flag in FLAGS:
            flags = [column[flag] for column in columns if column.get(flag) is not None]
            if flags:
                row[flag] = rate(sum(flags), len(flags))
        counted = {*COUNTS, *COUNTS.values()}
        sums = Counter[str]()
        for column in columns:
            sums.update({name: column.get(name, 0) for name in counted})
        row |= {
            part: rate(sums[part], sums[whole]) for part, whole in COUNTS.items() if sums[whole]
        }
        for name in columns[0].keys() - {*FLAGS, *counted}:
            values = [column[name] for column in columns if column[name] is not None]
            if values:
                row[name] = float(np.median(values))
        rows.append(row)
    return rows


def options(parser: Any) -> None:
    """The first seed."""
    parser.add_argument("--seed", type=int, default=0, help="of the first training")


PARTS = {"repeated": repeated, "null": null, "own": own, "private": private, "mistakes": mistakes}

if __name__ == "__main__":
    main("memaudit_comparison", __doc__, PARTS, options)
