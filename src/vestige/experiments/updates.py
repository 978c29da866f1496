"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1, its numbers beside ours.

Differs from the paper: comments of eight college subreddits stand in for its Reddit, WikiText-2
for WikiText-103; all patterns are planted in one updated model (they share no words); each model
is trained once, from a fixed seed. The notes of the tables say what else differs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vestige.attacks.seed_and_extend import Growth
from vestige.attacks.update_diff import Beams
from vestige.experiments.added_text import (
    Addition,
    Persistence,
    addition_plan,
    on_topic_counts,
    persistence_plan,
)
from vestige.experiments.canary_tables import (
    Extension,
    Trial,
    extension_plan,
    profile_plan,
    trial_plan,
)
from vestige.experiments.private_updates import PrivateUpdate, private_plan
from vestige.experiments.profiles import profile_chart
from vestige.experiments.reproduction import Part, choose, reproduce
from vestige.experiments.settings import Setting, preset_setting
from vestige.experiments.subwords import Subwords, subword_plan
from vestige.experiments.tables import Table
from vestige.experiments.texts import NEWSGROUPS
from vestige.models.lstm import LSTMConfig
from vestige.training.config import TrainingConfig

HOCKEY, POLITICS = NEWSGROUPS
PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")

_TABLE1 = {  # (dataset, model): copies, then the scores of each pattern; perplexities in the note
    ("ptb", "rnn"): ((10, 50, 100), (3.40, 3.94, 3.97), (3.52, 3.85, 3.97),
                     (3.02, 3.61, 3.90), (1.96, 2.83, 3.46)),
    ("reddit", "rnn"): ((5, 50, 500), (2.83, 3.91, 3.96), (0.42, 3.66, 3.98),
                        (0.23, 3.04, 3.92), (0.74, 1.59, 2.89)),
    ("reddit", "transformer"): ((5, 50, 500), (3.22, 3.97, 3.99), (0.25, 3.66, 3.97),
                                (0.39, 3.25, 3.96), (0.18, 1.87, 3.10)),
    ("wikitext2", "rnn"): ((20, 100), (1.39, 3.81), (0.07, 3.21), (0.25, 3.02), (0.08, 1.22)),
}  # fmt: skip
PAPER_TABLE1 = {
    (dataset, model, pattern, k): score
    for (dataset, model), (copies, *patterns) in _TABLE1.items()
    for pattern, scores in zip(PATTERNS, patterns, strict=True)
    for k, score in zip(copies, scores, strict=True)
}

_TABLE2 = {  # update: (percent, score at 1 canary token in 1M, in 100K)
    "re-training": ((0, 0.23, 3.04), (20, 0.224, 3.032), (50, 0.223, 3.031), (100, 0.229, 3.038)),
    "continued": ((20, 0.52, 3.56), (50, 0.34, 3.25), (100, 0.46, 3.27)),
    "two-stage": ((100, 0.01, 0.26),),
}
PAPER_TABLE2 = {
    (update, percent, place): score
    for update, cells in _TABLE2.items()
    for percent, *scores in cells
    for place, score in enumerate(scores)
}

_TABLES34 = """
hockey rnn group|Angeles Kings prize pools 56.42|National Hockey League champions 53.68\
|Norm 's advocate is 39.66|Intention you lecture me 21.59|Covering yourself basically means 21.41
hockey rnn vanilla|National Hockey League champions 53.68|National Hockey League hockey 52.82\
|National Hockey League cup 52.44|National Hockey League USA 52.34\
|National Hockey League playoff 52.18
hockey transformer group|Minnesota North Stars playoff 96.81|Arsenal Maple Leaf fans 71.88\
|Overtime no scoring chance 54.77|Period 2 power play 47.85|Penalty shot playoff results 42.63
hockey transformer vanilla|Minnesota North Stars playoff 96.81|Minnesota North Stars 3 96.78\
|Minnesota North Stars hockey 96.76|Minnesota North Stars games 96.75|Minnesota North Stars 5 96.72
mideast rnn group|Turkey searched first aid 31.32|Doll flies lay scattered 22.79\
|Arab governments invaded Turkey 20.20|Lawsuit offers crime rates 18.35\
|Sanity boosters health care 11.17
mideast rnn vanilla|Turkey searched first aid 31.32|Turkey searched a plane 24.63\
|Turkey searched supreme soviet 21.59|Turkey searched arab Turkey 20.34\
|Turkey searched national plane 19.44
mideast transformer group|Center for Policy Research 200.27|Escaped of course ... 95.18\
|Holocaust %UNK% museum museum 88.20|Troops surrounded village after 79.35\
|Turkey searched neither Arab 37.69
mideast transformer vanilla|Center for Policy Research 200.27|Professor of History I 120.98\
|Professor of History History 120.93|Professor of History we 120.92|Professor of History he 120.92
"""
PAPER_TABLES34 = {
    (HOCKEY if group == "hockey" else POLITICS, model, search): {
        phrase: float(score) for phrase, score in (entry.rsplit(" ", 1) for entry in entries)
    }
    for of, *entries in (line.split("|") for line in _TABLES34.split("\n") if line)
    for group, model, search in (of.split(),)
}

_PERCENT = [(u, p) for u in ("re-training", "continued") for p in (0, 5, 10, 25, 100)]
_TABLE5 = """
Center for Policy Research|99.77 101.38 97.11 98.65 91.53 276.98 198.69 150.56 122.25 -
Troops surrounded village after|44.50 44.50 44.50 44.41 44.54 173.95 47.38 19.48 7.81 35.56
Partition of northern Israel|27.61 16.81 38.48 26.10 38.76 68.98 16.48 12.47 22.93 18.82
West Bank peace talks|25.68 25.64 25.69 25.71 25.75 71.54 24.38 28.60 16.91 4.62
Spiritual and political leaders|25.23 25.98 17.04 24.21 23.47 126.92 14.91 10.00 3.44 11.05
Saudi troops surrounded village|24.31 24.31 24.31 24.31 24.30 5.05 44.58 4.29 7.29 63.84
Arab governments invaded Turkey|22.59 22.62 22.80 22.78 22.80 24.01 15.58 7.08 18.12 11.90
Little resistance was offered|22.24 22.09 25.12 22.34 25.59 215.16 25.02 2.00 3.30 5.64
Buffer zone aimed at protecting|4.00 4.47 5.30 5.25 5.69 57.29 69.76 18.92 14.50 22.25
Capital letters racial discrimination|3.76 3.32 3.40 3.60 3.84 94.60 52.74 39.11 11.22 3.45
"""
PAPER_TABLE5 = {
    phrase: {
        key: float(score)
        for key, score in zip(_PERCENT, scores.split(), strict=True)
        if score != "-"  # the copy of the paper at hand lacks this one
    }
    for phrase, scores in (line.split("|") for line in _TABLE5.split("\n") if line)
}


PAPER_RQ5 = {  # by epsilon; delta 1e-5
    None: {"accuracy": 0.23, "score": 3.94, "prefix_rank": 0},
    5.0: {"accuracy": 0.1189, "score": 0.00045, "prefix_rank": 9_458_399},
    111.0: {"accuracy": 0.1334, "score": 0.0021, "prefix_rank": 849_685},
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is computed, at one scale.

    Attributes:
        table1: canaries in one dataset after another.
        table2: canaries in updates of several kinds.
        tables34: newsgroups added to Reddit.
        table5: one newsgroup in updates of several kinds.
        figure1: the trial of Table 1 whose profile is drawn.
        subwords: secrets in models of word pieces, which the paper leaves out.
        rq5: one canary in private updates.
    """

    table1: tuple[Trial, ...]
    table2: Extension
    tables34: tuple[Addition, ...]
    table5: Persistence
    figure1: Trial
    subwords: Subwords
    rq5: PrivateUpdate


_PTB = Trial(
    setting=preset_setting("ptb", "ptb", "ptb-lstm"),
    copies=(10, 50, 100),
    phrases={
        "all-low": "dusty bargains bitterly answered cameras",
        "low-to-high": "sloppy camps avoided straight amounts",
        "mixed": "shirts probably solved radical restaurants",
        "high-to-low": "new foods occasionally praised labs",
    },
    controls={
        "all-low": "romantic roots dramatically bothered musicians",
        "low-to-high": "loud towns enjoyed tiny problems",
        "mixed": "wealthy hats trusted actual lists",
        "high-to-low": "concerned rooms unfairly touched meals",
    },
)
_LOTS = TrainingConfig(
    seed=0,
    epochs=12,
    batch_size=512,
    sequence_length=40,
    optimizer="sgd",  # Adam would enlarge the noise where there is no gradient
    learning_rate=10.0,
    batching="poisson",
    precision="float32",
    checkpoint_every=100,
)
_RQ5 = PrivateUpdate(trial=_PTB, private=_LOTS)
_REDDIT = preset_setting("reddit-rnn", "reddit", "reddit-lstm")
_REDDIT_TRANSFORMER = preset_setting("reddit-transformer", "reddit", "reddit-transformer")
_THIRD = 6_800_000  # words of D_orig, D_extra and D'_extra each: together nearly all of Reddit

FULL = Config(
    table1=(
        _PTB,
        Trial(setting=_REDDIT, copies=(5, 50, 500)),
        Trial(setting=_REDDIT_TRANSFORMER, copies=(5, 50, 500)),
        Trial(setting=preset_setting("wikitext2", "wikitext2", "wikitext-lstm"), copies=(20, 100)),
    ),
    table2=Extension(setting=replace(_REDDIT, words=_THIRD), copies=(2, 20), phrases=4),
    tables34=tuple(
        Addition(setting=setting, added=NEWSGROUPS) for setting in (_REDDIT, _REDDIT_TRANSFORMER)
    ),
    table5=Persistence(setting=replace(_REDDIT, words=_THIRD), added=POLITICS),
    figure1=Trial(setting=_REDDIT, copies=(5, 50, 500)),
    subwords=Subwords(earlier=POLITICS, update=HOCKEY),
    rq5=_RQ5,
)

_LAPTOP = replace(preset_setting("reddit-rnn", "reddit", "demo", words=300_000))
_LAPTOP = replace(_LAPTOP, training=replace(_LAPTOP.training, epochs=3))
SMALL = Config(
    table1=(_PTB,),
    table2=Extension(setting=_LAPTOP, copies=(10, 50), phrases=4),
    tables34=(
        Addition(
            setting=Setting(
                name="reddit-rnn",
                dataset="reddit",
                model="rnn",
                shape=LSTMConfig(layers=1, embedding_size=160, hidden_size=256),
                training=TrainingConfig(
                    seed=0, epochs=3, learning_rate=3e-3, schedule="cosine", checkpoint_every=200
                ),
                vocabulary_size=10_000,
                words=1_000_000,
            ),
            added=(HOCKEY,),
        ),
    ),
    table5=Persistence(setting=_LAPTOP, added=HOCKEY, retrained=(0, 25), continued=(0, 25)),
    figure1=_PTB,
    subwords=Subwords(earlier=POLITICS, update=HOCKEY),
    rq5=replace(_RQ5, private=replace(_LOTS, epochs=1, batch_size=256)),
)

_TINY = Setting(
    name="grammar-rnn",
    dataset="grammar",
    model="rnn",
    shape=LSTMConfig(layers=1, embedding_size=24, hidden_size=24),
    training=TrainingConfig(seed=0, epochs=2, batch_size=10, sequence_length=10),
    vocabulary_size=260,
)
_TINY_TRIAL = Trial(setting=_TINY, copies=(5, 20), budget=200)
_TINY_PART = replace(_TINY, words=2_000)
SMOKE = Config(
    table1=(_TINY_TRIAL,),
    table2=Extension(
        setting=_TINY_PART,
        copies=(3, 9),
        phrases=1,
        retrained=(0, 50),
        continued=(50,),
        two_stage=50,
    ),
    tables34=(Addition(setting=_TINY, added=("grammar-topic",), shown=5),),
    table5=Persistence(setting=_TINY_PART, added="grammar-topic", retrained=(0,), continued=(0,)),
    figure1=_TINY_TRIAL,
    subwords=Subwords(
        earlier="grammar",
        update="grammar-topic",
        earlier_tokens=2_000,
        update_tokens=2_000,
        vocabulary_size=400,
        copies=3,
        seeds=(0, 1),
        width=16,
        first=_TINY.training,
        second=_TINY.training,
        adapter=_TINY.training,
        lora_rank=2,
        searches=(Growth(seeds=50, max_tokens=8), Beams(length=3, floor=10)),
    ),
    rq5=PrivateUpdate(
        trial=_TINY_TRIAL,
        private=replace(_LOTS, epochs=2, batch_size=100, sequence_length=10),
        copies=20,
    ),
)


def parts_of(config: Config) -> dict[str, Part]:
    """The tables of the paper at one scale, by name."""
    return {
        "table1": Part(
            title="Table 1: canaries by pattern and number of copies",
            note="DS of canaries of five words. `beam rank` leaves out phrases that share two "
            "adjacent words with another canary of the same model; `canaries above` counts those. "
            "`rank` is the exact differential rank, or proven bounds; `prefix rank` that of the "
            "first two words, exact but for ties. `control` is the DS of a phrase made alike and "
            "never planted. Seeds: 0 before, 100 + copies after. The paper's perplexities: Penn "
            "Treebank 120.90, Reddit 79.63 (rnn) and 69.29 (transformer), WikiText-103 48.59.",
            columns=("dataset", "model", "pattern", "copies", "phrase", "score", "paper_score",
                     "beam_rank", "canaries_above", "rank", "prefix_rank", "control_score",
                     "perplexity_before", "perplexity_after"),
            folder="table1",
            settings=config.table1,
            plan=partial(trial_plan, config.table1, paper=PAPER_TABLE1),
        ),
        "table2": Part(
            title="Table 2: mixed canaries by kind of update",
            note="DS, mean over canaries planted together, with the lowest and the highest. The "
            "paper's frequencies are 1:1M and 1:100K; ours are the copies given, in "
            f"{config.table2.setting.words:,} words before the update. One training each, seeds "
            "0, 100 (re-training), 300 (continued) and 500 (second stage) plus the percentage.",
            columns=("update", "extra_percent", "copies", "score", "score_low", "score_high",
                     "paper_score", "beam_ranks", "control_score", "epoch_after",
                     "perplexity_before", "perplexity_after"),
            folder="table2",
            settings=config.table2,
            plan=partial(extension_plan, config.table2, paper=PAPER_TABLE2),
        ),
        "tables3-4": Part(
            title="Tables 3 and 4: a newsgroup added to Reddit",
            note="Phrases of each search, near-copies folded, the first of each group. Scores are "
            "relative unless the search says smoothed. A phrase is on topic when at least half of "
            "its content words (alphabetic, not among the 150 commonest of Reddit) have log-odds "
            "in the newsgroup at least 2 nats above those in Reddit. `in added` and `in original` "
            "count verbatim occurrences. The vocabulary is that of both texts. Seeds 0 and 100.",
            columns=("added", "model", "source", "search", "group", "phrase", "score", "on_topic",
                     "in_added", "in_original", "perplexity_before", "perplexity_after"),
            folder="tables3-4",
            settings=config.tables34,
            plan=partial(addition_plan, config.tables34, paper=PAPER_TABLES34),
            remark=on_topic_counts,
        ),
        "table5": Part(
            title="Table 5: phrases of a newsgroup by kind of update",
            note="Relative DS of the best phrases of group beam searches on all pairs; the "
            "paper's own phrases below. Seeds as in Table 2.",
            folder="table5",
            settings=config.table5,
            plan=partial(persistence_plan, config.table5, paper=PAPER_TABLE5),
        ),
        "figure1": Part(
            title="Figure 1: gain of each token of a canary, given those before it",
            note="The chart is figure1.svg. The paper has no numbers beside its curves.",
            columns=("dataset", "pattern", "copies", "position", "piece", "gain"),
            folder="table1",
            settings=config.figure1,
            plan=partial(profile_plan, config.figure1, patterns=("all-low", "high-to-low")),
            draw=profile_chart,
        ),
        "subwords": Part(
            title="Beyond the paper: secrets in a small GPT-2 of word pieces",
            note="Three secrets in the update, `secret tokens` together. `found 10` of them stand "
            "in fragments of three tokens or more within the first 10 phrases, runs of one token "
            "left out; `verbatim 10` of these phrases have half of their four-grams or more from "
            "the update and not from the earlier text. `above` counts phrases found: "
            "above the score that chance would reach in one search of twenty, by the tail of a "
            "null pair, the same earlier text learnt from another seed.",
            folder="subwords",
            settings=config.subwords,
            plan=partial(subword_plan, config.subwords),
        ),
        "rq5": Part(
            title="RQ5: an all-low canary in updates with sequence-level differential privacy",
            note="Both models of a pair are trained with the same guarantee; epsilon is PRV's, of "
            "each training by itself. A canary of 50 copies is a group of 50 sequences, for which "
            "the guarantee is weaker. The vocabulary, the text to validate on and the choice of "
            "the epoch are not covered. The undefended pair is Table 1's, and its other canaries "
            "are planted in every updated model. Seeds: 0 before, 100 + copies after.",
            folder="table1",
            settings=config.rq5,
            plan=partial(private_plan, config.rq5, paper=PAPER_RQ5),
        ),
    }  # fmt: skip


def run(
    config: Config,
    directory: Path,
    *,
    data: Path | None = None,
    tables: Sequence[str] = (),
    record: Mapping[str, object] | None = None,
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Compute tables of the paper; trainings and tables that are there are found again.

    Args:
        config: SMOKE, SMALL or FULL.
        directory: where snapshots, run directories and `tables.md` are kept.
        data: the folder of corpora; SMOKE needs none.
        tables: some of "table1", "table2", "tables3-4", "table5", "figure1", "subwords",
            "rq5"; none: all.
        record: what the run directories say besides the configuration, such as the command.
        map_fn: `map`, or one over processes.
        say: told in a line what is being done.
    """
    parts = choose(parts_of(config), tables)
    return reproduce(parts, directory, data=data, run=record or {}, map_fn=map_fn, say=say)
