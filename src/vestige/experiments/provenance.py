"""Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513: Tables 1 to 3 and 5, Figures 2 to 8, its numbers beside ours.

Differs from the paper: corpora are what can be had (Reddit's college comments, SATED's development
and test parts, the first films of Cornell's), users fewer, and all have as many texts; our audit
stands beside the paper's, intervals beside both, and the ratio of perplexities out over in beside
every AUC, since a target that overfits more is easier. Figure 7 keeps the target's dropout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vestige.experiments.audit_null import NullUsers
from vestige.experiments.audit_plans import (
    Config,
    crowd,
    named,
    other_shapes_of,
    private_training,
)
from vestige.experiments.audit_tables import Filling, Rows
from vestige.experiments.audited_texts import AuditedText
from vestige.experiments.reproduction import Part, choose, reproduce
from vestige.experiments.settings import Plan
from vestige.experiments.tables import Table

_REDDIT = AuditedText(
    dataset="reddit", members=100, others=100, reference=200, compared=100, each=50
)
_SATED = AuditedText(
    dataset="sated",
    members=300,
    others=300,
    reference=600,
    compared=300,
    each=4,
    shortest=1,
    longest=200,
)
_CORNELL = AuditedText(
    dataset="cornell", members=80, others=80, reference=120, compared=60, each=15, shortest=1
)
_LATE = named("reddit", _REDDIT, 10)
_EARLY = named("reddit, early", _REDDIT, 4)
_TALKS = named("sated", _SATED, 20)
_FILMS = named("cornell", _CORNELL, 20)
_SHOWN = (1, 5, 10, 50, 100, 500, 1000)
SMALL = Config(
    targets=(_LATE, _EARLY, _TALKS, _FILMS),
    crossed=(
        named("reddit", _REDDIT, 10, shadows=4, domain="wikitext2"),
        named("cornell", _CORNELL, 20, shadows=4, domain="ubuntu-irc"),
    ),
    others=(
        other_shapes_of(_LATE, shadows=2, epochs=10, rate=0.1),
        other_shapes_of(_TALKS, shadows=4, epochs=20, rate=0.1),
        other_shapes_of(_FILMS, shadows=4, epochs=20, rate=0.1),
    ),
    crowds=tuple(
        crowd(users, others=200, reference=400, compared=200, epochs=6, shadows=2)
        for users in (100, 300, 500)
    ),
    shown=_SHOWN,
    queries=(1, 2, 4, 8, 16, 32),
    calls=(8, 32, 128, 512),
    noise=(0.1, 0.5),
    obfuscations=("none", "apertium", "synonyms"),
    null=NullUsers(users=600, each=20),
    private=private_training(1.0, 0.3, users=500, rounds=300),
)
FULL = replace(
    SMALL,
    targets=tuple(
        replace(
            each,
            setting=replace(
                each.setting,
                training=replace(each.setting.training, epochs=30 if each is not _EARLY else 4),
            ),
        )
        for each in SMALL.targets
    ),
    crossed=tuple(
        replace(each, setting=replace(each.setting, shadows=10)) for each in SMALL.crossed
    ),
    others=tuple(
        other_shapes_of(each, shadows=10, epochs=50, rate=0.1) for each in (_LATE, _TALKS, _FILMS)
    ),
    crowds=tuple(
        crowd(users, others=300, reference=400, compared=200, epochs=30, shadows=10)
        for users in (100, 200, 300, 500, 1000, 1500)
    ),
    noise=(0.1, 0.2, 0.3, 0.4, 0.5),
    private=private_training(1.0, 0.3, users=1500, rounds=300),
    ablated=20,
)
_MADE = AuditedText(
    dataset="grammar", members=8, others=8, reference=24, compared=14, each=12, vocabulary_size=120
)
_PAIRS = replace(_MADE, dataset="grammar-pairs")
_SMOKE = replace(named("grammar", _MADE, 2, shadows=2))
SMOKE = Config(
    targets=(_SMOKE, named("grammar pairs", _PAIRS, 1, shadows=2)),
    crossed=(),
    others=(other_shapes_of(_SMOKE, shadows=2, epochs=1, rate=0.1),),
    crowds=(_SMOKE,),
    shown=(1, 20),
    queries=(6,),
    calls=(30,),
    noise=(0.25,),
    obfuscations=("none", "reversed"),
    null=NullUsers(users=4, each=12, calibration=2),
    private=private_training(1.0, 0.3, users=8, rounds=25),
    ablated=1,
)
SHOWN = (
    *("ratio", "audit", "auc", "auc_low", "auc_high", "paper_auc", "tpr_at_fpr_1"),
    *("accuracy", "accuracy_low", "accuracy_high", "precision", "recall", "false_positive_rate"),
)


def parts_of(config: Config, filling: Filling) -> dict[str, Part]:
    """The tables and figures at one scale, by name."""

    def part(title: str, fill: Callable[[], Rows], *names: str, note: str = "") -> Part:
        return Part(
            title=title,
            note=note,
            folder="trials",
            settings=config,
            plan=lambda directory, data: Plan(trainings=(), rows=fill),
            columns=(*names, *SHOWN) if names else (),
        )

    judged = (
        "`paper` is the paper's audit (histogram of ranks, LinearSVC), `ours` evidence of words "
        "learnt from shadow models, less what is expected of users who are out; `ratio` is the "
        "target's perplexity out over in. AUCs have Newcombe's intervals, decisions Clopper and "
        "Pearson's; ours calls whose p-value is at most 0.05."
    )
    return {
        "table1": part(
            "Table 1: word accuracy and perplexity", filling.table1, note="In: members' text."
        ),
        "audit": part("Section 4.3: the whole vocabulary", filling.whole, "dataset", note=judged),
        "table2": part(
            "Table 2: shadows of other hyper-parameters", filling.table2, "dataset", note=judged
        ),
        "table3": part(
            "Table 3: output size", filling.table3, "dataset", "domain", "k", note=judged
        ),
        "figure2": part("Figure 2: users", filling.figure2, "users", "k", note=judged),
        "figure3": part(
            "Figure 3: queries",
            filling.figure3,
            *("dataset", "k", "words", "selection", "queries"),
            note=f"{judged} `words`: queries are single words, not texts.",
        ),
        "figure4": part("Figure 4: noise", filling.figure4, "noise", "members", note=judged),
        "table5": part("Table 5: obfuscated comments", filling.table5, "obfuscation", note=judged),
        "null": part(
            "The null: p-values of users who are out",
            filling.null,
            note="Each against 199 users drawn anew; `two sample p` compares two halves.",
        ),
        "private": part(
            "DP-FedAvg",
            filling.private,
            *("epsilon", "delta", "accuracy_in", "accuracy_out", "perplexity_out", "k"),
            note=judged,
        ),
        "figure8": part(
            "Figure 8: predicted ranks of the private model",
            filling.figure8,
            note="Mean predicted rank of words by their rank in the training text's frequencies.",
        ),
        "figures5-7": part(
            "Figures 5 to 7: where the memory sits",
            filling.memory,
            note="Words by frequency in the training text; gaps are unseen less seen.",
        ),
    }


def run(
    config: Config,
    directory: Path,
    *,
    data: Path | None = None,
    tables: Sequence[str] = (),
    record: Mapping[str, object] | None = None,
    map_fn: Callable[..., Iterable[Any]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Compute tables and figures of the paper; what is there already is found again.

    Args:
        config: SMOKE, SMALL or FULL.
        directory: where models, what they said, run directories and `tables.md` are kept.
        data: the folder of corpora; SMOKE needs none.
        tables: some of the names of `parts_of`; none: all.
        record: what the run directories say besides the configuration, such as the command.
        map_fn: `map`, or one over processes.
        say: told in a line what is being done.
    """
    filling = Filling(config, directory / "trials", data, map_fn, say)
    parts = choose(parts_of(config, filling), tables)
    return reproduce(parts, directory, data=data, run=record or {}, map_fn=map_fn, say=say)
