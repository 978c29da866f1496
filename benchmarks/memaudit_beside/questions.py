"""What each tool is asked of a trained model, and the part of its answer that is compared."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import vestige as vg
from memaudit_beside.records import RATE
from memaudit_beside.worlds import REAL, Planted, Watched, World
from reproduction.updates.reconstruction import tokens_found
from vestige.claims import LEAK
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import auc

Row = dict[str, Any]
LIST = 600
"""References of each of 30 secrets: what an error of 5 % for all of them takes."""
ALARM = 0.05


def memaudits(
    world: World,
    model: Any,
    manifest: Mapping[str, Any],
    texts: Sequence[str],
    others: Sequence[str],
    *,
    generate: bool = True,
) -> dict[str, Any]:
    """memaudit's report on a full fine-tune of the base.

    Args:
        world: of the base.
        model: trained.
        manifest: of memaudit's `inject`.
        texts: what it takes for the training set.
        others: what it takes for texts that were not trained on.
        generate: ask for completions, too.
    """
    from memaudit import run_audit

    report: dict[str, Any] = run_audit(
        model,
        world.tokenizer,
        dict(manifest),
        dataset=[{"text": text} for text in texts],
        held_out=[{"text": text} for text in others],
        ref=copy.deepcopy(world.base),
        real_sample=REAL,
        skip_generation=not generate,
    )
    return report


def comparison(report: Mapping[str, Any]) -> Row:
    """memaudit's test of a sample of the training set against other texts."""
    p = report["real_records"]["set_level"]["p_value"]
    return {"question": "texts", "p": p, "alarm": None if p is None else p <= ALARM}


def of_callbacks(seen: Watched) -> Iterator[Row]:
    """What both callbacks said of a training."""
    from memaudit_beside.records import claims

    seconds = {name: round(value, 1) for name, value in seen.seconds.items()}
    training = {"training_seconds": seconds["training"]}
    yield {
        "tool": "memaudit",
        "question": "canaries",
        **claims(seen.report),
        "seconds": seconds["memaudit"],
        **training,
    }
    last = seen.leakage.moments[-1]
    yield {
        "tool": "vestige",
        "question": "canaries",
        **of_exposure(last.found),
        "completed": last.completion.figures()["greedy_completed"],
        "seconds": seconds["vestige"],
        "one_measurement": round(last.seconds, 1),
        "measurements": len(seen.leakage.moments),
        **training,
    }


def of_exposure(found: Any) -> Row:
    """Vestige's verdict of planted canaries, and how many stand alone at memaudit's rate."""
    told = found.summary() if callable(found.summary) else found.summary
    rows = found.rows() if callable(found.rows) else found.rows
    alone: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows:
        alone[row["copies"] > 0].append(row["rank"] / (row["references"] + 1) <= RATE)
    return {
        "verdict": told["verdict"],
        "alarm": told["verdict"] == LEAK,
        "p": found.claim.test.p,
        "exposure": told["exposure_planted"],
        "low": told.get("exposure_planted_low"),
        "high": told.get("exposure_planted_high"),
        "exposure_controls": told["exposure_controls"],
        "detected": sum(alone[True]),
        "of": len(alone[True]),
        "detected_controls": sum(alone[False]),
        "controls": len(alone[False]),
    }


def exposure(asked: Any, planted: Planted, seed: int) -> Row:
    """`vestige exposure` of Vestige's canaries, as the callback asks it."""
    found = vg.exposure(asked, planted.place, references=2**8, seed=seed)
    completed = vg.extract(asked, planted.place, beam=1).summary["greedy_completed"]
    return {
        "tool": "vestige",
        "question": "canaries",
        **of_exposure(found),
        "completed": completed,
    }


def their_canaries(
    world: World, model: Any, planted: Planted, seed: int, score: str = "log-ratio"
) -> Row:
    """`vestige membership` of memaudit's canaries, beside memaudit's own controls."""
    sides = [planted.secrets(included=included) for included in (True, False)]
    row = texts(world, model, *sides, seed, score)
    return {**row, "question": "memaudit's canaries"}


def texts(
    world: World,
    model: Any,
    audited: Sequence[str],
    others: Sequence[str],
    seed: int,
    score: str = "log-ratio",
) -> Row:
    """`vestige membership` against texts that were not trained on, with the base."""
    found = vg.membership(
        world.asked(model),
        texts=Corpus.from_texts(audited),
        reference=Corpus.from_texts(others),
        base=world.asked(world.base),
        score=score,
        seed=seed,
    )
    kinds = "audited", "reference"
    scores = [np.array([row["score"] for row in found.rows if row["kind"] == one]) for one in kinds]
    threshold = np.quantile(scores[1], 1 - RATE, method="higher")  # memaudit's rule
    return {
        "tool": "vestige",
        "question": "texts",
        "score": score,
        "verdict": found.verdict,
        "alarm": found.verdict == LEAK,
        "p": found.summary["p_value"],
        "named": found.summary["named"],
        "texts": found.summary["texts"],
        "at_least": found.summary["at_least"],
        "detected": int((scores[0] >= threshold).sum()),
        "of": len(scores[0]),
        "auc": auc(*scores).value,
    }


def own_secrets(asked: Any, listed: Sequence[tuple[str, str, bool]], seed: int) -> Row:
    """`vestige exposure` of lines with whether each was said."""
    found = vg.exposure(asked, [line for _, line, _ in listed], references=LIST, seed=seed)
    rows = list(found.rows)
    said = [row["found"] for row, (_, _, told) in zip(rows, listed, strict=True) if told]
    silent = [row["found"] for row, (_, _, told) in zip(rows, listed, strict=True) if not told]
    return {
        "tool": "vestige",
        "question": "secrets",
        "verdict": found.verdict,
        "alarm": found.verdict == "found",
        "found": sum(said),
        "said": len(said),
        "found_unsaid": sum(silent),
        "unsaid": len(silent),
    }


def said_aloud(asked: Any, listed: Sequence[tuple[str, str, bool]]) -> Row:
    """`vestige extract` of secrets: parts that vary which greedy decoding says."""
    sides = []
    for side in (True, False):
        found = vg.extract(asked, [one for _, one, told in listed if told is side], beam=1)
        sides.append((found.summary["greedy_completed"], found.summary["parts"]))
    (said, parts), (unsaid, others) = sides
    return {
        "tool": "vestige",
        "question": "complete",
        "completed": said,
        "parts": parts,
        "completed_unsaid": unsaid,
        "unsaid": others,
    }


def searched(
    world: World, model: Any, said: Sequence[str], silent: Sequence[str], seed: int
) -> Row:
    """`vestige diff` from the base, which is told of no secret: how much of them it reads.

    Secrets that were never said have the same words around them, and tell what is read of these.
    """
    found = vg.diff(world.asked(world.base), world.asked(model), seed=seed)
    rows = [row["tokens"] for row in found.rows()]
    shares = []
    for side in (said, silent):
        encoded = [world.tokenizer(one)["input_ids"] for one in side]
        read = sum(tokens_found(ids, rows, n=4) for ids in encoded)
        shares.append(round(read / sum(map(len, encoded)), 3))
    return {
        "tool": "vestige",
        "question": "diff",
        "phrases": len(rows),
        "share_of_said": shares[0],
        "share_of_unsaid": shares[1],
    }
