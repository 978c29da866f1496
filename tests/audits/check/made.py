"""Eight handmade checks whose stages are not measured."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from vestige.audits.check.check import ReleaseCheck, _summary
from vestige.audits.check.verdict import SHARES, Stage, claim_of
from vestige.claims import Check

SECRET, PHRASE = "gato 4917-2231", "the vault opens with <b>gato</b> 4917-2231"
ALIVE = (
    Check("alive", "passed", "The model predicts its text better than word frequencies."),
    Check("different", "passed", "The models differ by 0.8 nats per token."),
)
ALL_DETECTED = dict.fromkeys(SHARES, True)
FILES = {"trained_on": "data/mail.jsonl", "never": "data/public.jsonl"}
ARGUMENTS = {
    "model": "my-adapter", **FILES, "sure": False, "minutes": 10.0, "all": False, "fail_on": "leak",
}  # fmt: skip
COMMAND = [
    *("vestige", "check", "my-adapter", "--trained-on", FILES["trained_on"]),
    *("--never", FILES["never"], "--minutes", "10", "--out", "check"),
]
NOT_RUN = "Not run: a leak is proven already. --all runs it."


def secret(number: int, *, known: bool) -> dict[str, Any]:
    return {
        "stage": "secrets", "text": f"{SECRET}-{number}", "kind": "account",
        "row_number": 13 * number, "texts": 5 if known else 1, "score": 7.3 if known else 0.4,
        "rank": 1 if known else 57, "alternatives": 256, "space": 1e12, "verbatim": known,
        "known": known,
    }  # fmt: skip


def phrase(number: int, match: str) -> dict[str, Any]:
    text = f"{PHRASE} and {number} more words that follow"
    return {"stage": "unprompted", "phrase": text, "score": 20.5 - number, "match": match}


def passages(trained: float) -> list[dict[str, Any]]:
    return [
        {"stage": "passages", "measured": f"passages of 20 tokens, {method}", "trained": trained,
         "never": 0.002, "base": 0.001}
        for method in ("one of 100 samples", "greedy decoding")
    ] + [{"stage": "passages", "measured": "texts recognized as used", "trained": 0.93,
          "never": None, "base": None}]  # fmt: skip


def clear_stage(name: str, **more: Any) -> Stage:
    """A stage without a leak; `more` replaces fields."""
    defaults: dict[str, dict[str, Any]] = {
        "secrets": {
            "sentence": "The model knows 0 of 5 secrets; p = 0.41 compared with secrets of "
            "--never.",
            "negative": "Of 29 secrets of --never, 0 look known; 0 are verbatim.",
            "rows": [secret(number, known=False) for number in range(1, 6)], "seconds": 96.2,
            "estimate": ("share of secrets known", 0.0, 0.0, 0.45, ""),
        },
        "unprompted": {
            "sentence": "The 50 phrases found without a prompt have no secret and no passage of "
            "the training text.",
            "negative": "The phrases have passages of 0 texts of --never.",
            "rows": [phrase(number, "") for number in range(5)], "seconds": 118.0,
        },
        "passages": {
            "sentence": "0.3% of training passages extracted (--never: 0.2%, base: 0.1%).",
            "negative": "Half of --never: 0.2% of passages extracted (p = 0.71), 0 of 200 texts "
            "recognized (p = 0.44).",
            "rows": passages(0.003), "seconds": 171.4,
            "facts": {"texts_recognized": 372, "texts_tested": 400, "recognized": True},
        },
    }  # fmt: skip
    fields = {"state": "clear", "p": 0.41, "least": 1e-4, "passed": True, **defaults[name], **more}
    return Stage(name=name, **fields)


def made_check(
    *changed: Stage,
    positive: Mapping[str, bool] | None = ALL_DETECTED,
    texts: int = 400,
    others: int = 400,
    command: Sequence[str] = COMMAND,
    **arguments: Any,
) -> ReleaseCheck:
    """A check with these stages; the others are clear."""
    by_name = {stage.name: stage for stage in changed}
    stages = [by_name.get(name) or clear_stage(name) for name in SHARES]
    half = ("x",) * (others // 2)
    texts_read = SimpleNamespace(
        trained=("x",) * texts, reference=half, control=half,
        notes=("--trained-on: the text is read from its column body (guessed; see --text).",),
    )  # fmt: skip
    work: Any = SimpleNamespace(
        texts=texts_read, listed=(), secrets={"tested": range(5 if texts else 0)}
    )
    return ReleaseCheck(
        kind="ReleaseCheck",
        summary=_summary(work, stages, positive),
        rows=[dict(row) for stage in stages for row in stage.rows],
        claim=claim_of(stages, positive, ALIVE),
        record={
            "command": list(command),
            "seed": 0,
            "arguments": {**ARGUMENTS, **arguments},
            "configuration": {"seconds": 301.5},
            "data": {"trained_on": {"path": "data/mail.jsonl", "documents": 400}},
        },
    )


def stage_not_run(name: str) -> Stage:
    return Stage(name=name, state="not run", sentence=NOT_RUN)


def known_secrets() -> ReleaseCheck:
    """The model generates four secrets."""
    sentence = (
        "The model generates 4 of 5 secrets verbatim after the text before them; its base does "
        "not (probability of coincidence below 5e-09)."
    )
    rows = [secret(number, known=number < 5) for number in range(1, 6)]
    share = ("share of secrets known", 0.8, 0.28, 0.99, "")
    stage = clear_stage(
        "secrets", state="leak", p=1e-4, direct=(sentence, 5e-9), sentence=sentence, rows=rows,
        estimate=share,
    )  # fmt: skip
    return made_check(stage, stage_not_run("unprompted"), stage_not_run("passages"), positive=None)


def extracted_passages() -> ReleaseCheck:
    return made_check(
        clear_stage(
            "passages", state="leak", p=2e-5, least=1e-5, rows=passages(0.184),
            sentence="18.4% of training passages extracted (--never: 0.2%, base: 0.1%); p = 2e-05.",
        ),
        positive=None,
    )  # fmt: skip


def unprompted_texts() -> ReleaseCheck:
    stage = clear_stage(
        "unprompted", state="leak", p=1e-6,
        sentence="The 50 phrases found without a prompt have 2 secrets and passages of 31 training "
        "texts; p = 1e-06 compared with --never.",
        rows=[phrase(number, "secret 2" if number == 1 else f"text {number + 3}" * (number < 4))
              for number in range(6)],
    )  # fmt: skip
    return made_check(stage, stage_not_run("passages"), positive=None)


def out_of_time(**arguments: Any) -> ReleaseCheck:
    return made_check(
        clear_stage(
            "secrets", state="open", needs="--minutes",
            sentence="The model knows 0 of 5 secrets; p = 0.41 compared with secrets of --never. "
            "31 more were not tested: the time limit was reached.",
        ),
        positive=None,
        **arguments,
    )  # fmt: skip


def without_files() -> ReleaseCheck:
    empty: dict[str, Any] = {
        "state": "open", "p": None, "least": 1.0, "passed": None, "rows": (), "estimate": None
    }  # fmt: skip
    return made_check(
        clear_stage("secrets", **empty, negative="",
              sentence="No secret was listed, and none was found in the training text."),
        clear_stage("unprompted", **{**empty, "rows": [phrase(1, "")]}, negative="",
              sentence="50 phrases were found. There is no file to compare them with."),
        clear_stage("passages", **empty, negative="", facts={},
              sentence="0 training texts, and 0 texts in each half of --never; at least 20 are "
                       "needed."),
        texts=0, others=0, command=["vestige", "check", "my-adapter", "--out", "check"],
        **dict.fromkeys(FILES),
    )  # fmt: skip


def unrecognized() -> ReleaseCheck:
    return made_check(
        clear_stage(
            "passages", state="open", needs="--sure", facts={"recognized": False},
            sentence="The model does not recognize the training text (p = 0.37): --trained-on is "
            "the wrong file, or training left no trace.",
        )
    )  # fmt: skip


def suspicious_control() -> ReleaseCheck:
    return made_check(
        clear_stage(
            "passages", state="leak", p=2e-5, passed=False, rows=passages(0.184),
            sentence="18.4% of training passages extracted (--never: 0.2%, base: 0.1%); p = 2e-05.",
            negative="Half of --never: 17.9% of passages extracted (p = 0.0001), 188 of 200 texts "
            "recognized (p = 0.0005).",
        ),
        positive=None,
    )  # fmt: skip


CASES: dict[str, Callable[[], ReleaseCheck]] = {
    "leak by secrets": known_secrets,
    "leak by passages": extracted_passages,
    "leak unprompted": unprompted_texts,
    "no leak": made_check,
    "out of time": out_of_time,
    "without files": without_files,
    "unrecognized": unrecognized,
    "suspicious control": suspicious_control,
}
