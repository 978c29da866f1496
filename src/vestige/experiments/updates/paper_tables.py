"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1, its numbers beside ours.

Differs from the paper: comments of eight college subreddits stand in for its Reddit, WikiText-2
for WikiText-103; all patterns are planted in one updated model (they share no words); each model
is trained from fixed seeds. The notes of the tables say what else differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from vestige.attacks.update.seed_and_extend import SeedAndExtend
from vestige.attacks.update.update_diff import Beams
from vestige.experiments.paper_numbers import paper_numbers
from vestige.experiments.reproduction import Part, run_paper
from vestige.experiments.texts import NEWSGROUPS
from vestige.experiments.updates.added_text import (
    Addition,
    Persistence,
    addition_plan,
    on_topic_counts,
    persistence_plan,
)
from vestige.experiments.updates.canary_tables import (
    CanaryCopies,
    Extension,
    copies_plan,
    extension_plan,
    profile_chart,
    profile_plan,
)
from vestige.experiments.updates.private_updates import PrivateUpdate, private_plan
from vestige.experiments.updates.settings import Setting, preset_setting
from vestige.experiments.updates.subwords import Subwords, subword_plan
from vestige.models.lstm import LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig

HOCKEY, POLITICS = NEWSGROUPS
PAPER = {
    "table1": paper_numbers("updates", "table1", key=4),
    "table2": paper_numbers("updates", "table2", key=3),
    "tables3-4": paper_numbers("updates", "tables34", key=4),
    "table5": paper_numbers("updates", "table5", key=1),
    "rq5": paper_numbers("updates", "rq5", key=1),
}
"""The paper's numbers; WikiText-103 stands under the name of our text, WikiText-2."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is computed, at one scale.

    Attributes:
        table1: canaries in one text and model after another, each a table of its own, by name.
        table2: canaries in updates of several kinds.
        tables34: newsgroups added to Reddit.
        table5: one newsgroup in updates of several kinds.
        figure1: the trial of Table 1 whose profile is drawn.
        subwords: secrets in models of word pieces, which the paper leaves out.
        rq5: one canary in private updates.
    """

    table1: Mapping[str, CanaryCopies]
    table2: Extension
    tables34: tuple[Addition, ...]
    table5: Persistence
    figure1: CanaryCopies
    subwords: Subwords
    rq5: PrivateUpdate


_PTB = CanaryCopies(
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
_WIKITEXT = preset_setting("wikitext2", "wikitext2", "wikitext-lstm")
_THIRD = 6_800_000  # words of D_orig, D_extra and D'_extra each: together nearly all of Reddit

FULL = Scale(
    table1={
        "table1": _PTB,
        "table1-reddit-rnn": CanaryCopies(setting=_REDDIT, copies=(5, 50, 500)),
        "table1-reddit-transformer": CanaryCopies(setting=_REDDIT_TRANSFORMER, copies=(5, 50, 500)),
        "table1-wikitext": CanaryCopies(setting=_WIKITEXT, copies=(20, 100)),
    },
    table2=Extension(setting=replace(_REDDIT, words=_THIRD), copies=(2, 20), phrases=4),
    tables34=tuple(
        Addition(setting=setting, added=NEWSGROUPS) for setting in (_REDDIT, _REDDIT_TRANSFORMER)
    ),
    table5=Persistence(setting=replace(_REDDIT, words=_THIRD), added=POLITICS),
    figure1=CanaryCopies(setting=_REDDIT, copies=(5, 50, 500)),
    subwords=Subwords(earlier=POLITICS, update=HOCKEY),
    rq5=_RQ5,
)

_LAPTOP = preset_setting("reddit-rnn", "reddit", "demo", words=300_000)
_LAPTOP = replace(_LAPTOP, training=replace(_LAPTOP.training, epochs=3))
_PART = 150_000  # words of Reddit and of WikiText, so that one core learns a model in minutes
_PART_LSTM = replace(
    _LAPTOP,
    shape=LSTMConfig(layers=1, embedding_size=96, hidden_size=96),
    vocabulary_size=3_000,
    words=_PART,
)
_PART_TRANSFORMER = replace(
    _PART_LSTM,
    name="reddit-transformer",
    model="transformer",
    shape=TransformerConfig(layers=2, heads=6, hidden_size=96, feed_forward=384, dropout=0.0),
    training=replace(
        _LAPTOP.training,
        batch_size=16,
        sequence_length=32,
        learning_rate=3e-3,
        warmup_steps=100,
        max_grad_norm=1.0,
    ),
)
_PART_WIKITEXT = replace(
    _PART_LSTM,
    name="wikitext2",
    dataset="wikitext2",
    shape=LSTMConfig(layers=2, embedding_size=96, hidden_size=96),
)
SMALL = Scale(
    table1={
        "table1": _PTB,
        "table1-reddit-rnn": CanaryCopies(
            setting=_PART_LSTM, copies=(5, 50, 500), budget=2_000, trainings=3
        ),
        "table1-reddit-transformer": CanaryCopies(
            setting=_PART_TRANSFORMER, copies=(5, 50, 500), budget=2_000
        ),
        "table1-wikitext": CanaryCopies(setting=_PART_WIKITEXT, copies=(20, 100), budget=2_000),
    },
    table2=Extension(setting=_LAPTOP, copies=(10, 50), phrases=4),
    tables34=tuple(
        Addition(setting=replace(setting, words=100_000), added=NEWSGROUPS, words=20_000)
        for setting in (_PART_LSTM, _PART_TRANSFORMER)
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
_TINY_COPIES = CanaryCopies(setting=_TINY, copies=(5, 20), budget=200)
_TINY_PART = replace(_TINY, name="grammar-part", words=2_000)
_TINY_DEEP = replace(
    _TINY_PART,
    name="grammar-deep",
    shape=LSTMConfig(layers=2, embedding_size=24, hidden_size=24),
)
_TINY_TRANSFORMER = replace(
    _TINY_PART,
    name="grammar-transformer",
    model="transformer",
    shape=TransformerConfig(layers=1, heads=2, hidden_size=24, feed_forward=48),
)
SMOKE = Scale(
    table1={
        "table1": _TINY_COPIES,
        "table1-reddit-rnn": replace(_TINY_COPIES, setting=_TINY_PART, copies=(5,), trainings=2),
        "table1-reddit-transformer": CanaryCopies(
            setting=_TINY_TRANSFORMER, copies=(5,), budget=200
        ),
        "table1-wikitext": replace(_TINY_COPIES, setting=_TINY_DEEP, copies=(5,)),
    },
    table2=Extension(
        setting=_TINY_PART,
        copies=(3, 9),
        phrases=1,
        retrained=(0, 50),
        continued=(50,),
        two_stage=50,
    ),
    tables34=(
        Addition(setting=_TINY, added=("grammar-topic",), shown=5),
        Addition(setting=_TINY_TRANSFORMER, added=("grammar-topic",), words=1_000, shown=5),
    ),
    table5=Persistence(setting=_TINY_PART, added="grammar-topic", retrained=(0,), continued=(0,)),
    figure1=_TINY_COPIES,
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
        searches=(SeedAndExtend(seeds=50, max_tokens=8), Beams(length=3, floor=10)),
    ),
    rq5=PrivateUpdate(
        trial=_TINY_COPIES,
        private=replace(_LOTS, epochs=2, batch_size=100, sequence_length=10),
        copies=20,
    ),
)


_COLUMNS1 = (
    "dataset", "model", "pattern", "copies", "phrase", "score", "mean_score", "interval",
    "paper_score", "beam_rank", "in_beam", "canaries_above", "rank", "prefix_rank",
    "control_score", "perplexity_before", "perplexity_after",
)  # fmt: skip


def _canaries(of: CanaryCopies) -> Part:
    """One text and model of Table 1."""
    words = of.setting.words
    amount = "the whole text" if words is None else f"{words:,} words of the text"
    return Part(
        title=f"Table 1, {of.setting.name}: canaries by pattern and number of copies",
        note="DS of canaries of five words. `beam rank` leaves out phrases that share two "
        "adjacent words with another canary of the same model; `canaries above` counts those; "
        "only where it is `in beam` did the search find the canary itself. "
        "`rank` is the exact differential rank, or proven bounds; `prefix rank` that of the "
        "first two words, exact but for ties. `control` is the DS of a phrase made alike and "
        "never planted. Seeds: 0 before, 100 + copies after, and 1,000 more for each further "
        "training; the columns are the first's but for `mean score` and its 95 % `interval` "
        f"(Student's t) over {of.trainings} trainings. The paper's perplexities: Penn "
        "Treebank 120.90, Reddit 79.63 (rnn) and 69.29 (transformer), WikiText-103 48.59. "
        f"Learnt from {amount}, with a vocabulary of {of.setting.vocabulary_size:,}.",
        columns=_COLUMNS1,
        folder="table1",
        settings=(of,),
        plan=partial(copies_plan, of, paper=PAPER["table1"]),
    )


def parts_of(scale: Scale) -> dict[str, Part]:
    """The tables of the paper at one scale, by name."""
    return {
        **{name: _canaries(of) for name, of in scale.table1.items()},
        "table2": Part(
            title="Table 2: mixed canaries by kind of update",
            note="DS, mean over canaries planted together, with the lowest and the highest. The "
            "paper's frequencies are 1:1M and 1:100K; ours are the copies given, in "
            f"{scale.table2.setting.words:,} words before the update. One training each, seeds "
            "0, 100 (re-training), 300 (continued) and 500 (second stage) plus the percentage.",
            columns=("update", "extra_percent", "copies", "score", "score_low", "score_high",
                     "paper_score", "beam_ranks", "control_score", "epoch_after",
                     "perplexity_before", "perplexity_after"),
            folder="table2",
            settings=scale.table2,
            plan=partial(extension_plan, scale.table2, paper=PAPER["table2"]),
        ),
        "tables3-4": Part(
            title="Tables 3 and 4: a newsgroup added to Reddit",
            note="Phrases of each search, near-copies folded, the first of each group. Scores are "
            "relative unless the search says smoothed. A phrase is on topic when at least half of "
            "its content words (alphabetic, not among the 150 commonest of Reddit) have log-odds "
            "in the newsgroup at least 2 nats above those in Reddit. `in added` and `in original` "
            "count verbatim occurrences. The vocabulary is that of both texts. Seeds 0 and 100. "
            "Source `null` is what the same search finds between two trainings of the original "
            "alone, seeds 0 and 1.",
            columns=("added", "model", "source", "search", "group", "phrase", "score", "on_topic",
                     "in_added", "in_original", "perplexity_before", "perplexity_after"),
            folder="tables3-4",
            settings=scale.tables34,
            plan=partial(addition_plan, scale.tables34, paper=PAPER["tables3-4"]),
            remark=on_topic_counts,
        ),
        "table5": Part(
            title="Table 5: phrases of a newsgroup by kind of update",
            note="Relative DS of the best phrases of group beam searches on all pairs; the "
            "paper's own phrases below. Seeds as in Table 2.",
            folder="table5",
            settings=scale.table5,
            plan=partial(persistence_plan, scale.table5, paper=PAPER["table5"]),
        ),
        "figure1": Part(
            title="Figure 1: gain of each token of a canary, given those before it",
            note="The chart is figure1.svg. The paper has no numbers beside its curves.",
            columns=("dataset", "pattern", "copies", "position", "piece", "gain"),
            folder="table1",
            settings=scale.figure1,
            plan=partial(profile_plan, scale.figure1, patterns=("all-low", "high-to-low")),
            draw=profile_chart,
        ),
        "subwords": Part(
            title="Beyond the paper: secrets in a small GPT-2 of word pieces",
            note="Three secrets in the update, `secret tokens` together. `found 10` of them stand "
            "in fragments of three tokens or more within the first 10 phrases, runs of one token "
            "left out; `verbatim 10` of these phrases have half of their four-grams or more from "
            "the update and not from the earlier text. `above` counts phrases that score higher "
            "than any of one null search, the same earlier text learnt from another seed: a cut, "
            "which every other clean update exceeds, and no verdict.",
            folder="subwords",
            settings=scale.subwords,
            plan=partial(subword_plan, scale.subwords),
        ),
        "rq5": Part(
            title="RQ5: an all-low canary in updates with sequence-level differential privacy",
            note="Both models of a pair are trained with the same guarantee; epsilon is PRV's, of "
            "each training by itself. A canary of 50 copies is a group of 50 sequences, for which "
            "the guarantee is weaker. The vocabulary, the text to validate on and the choice of "
            "the epoch are not covered. The undefended pair is Table 1's, and its other canaries "
            "are planted in every updated model. Seeds: 0 before, 100 + copies after.",
            folder="table1",
            settings=scale.rq5,
            plan=partial(private_plan, scale.rq5, paper=PAPER["rq5"]),
        ),
    }  # fmt: skip


run = partial(run_paper, parts_of)
"""Fill these tables at a scale; see `reproduction.run_paper`."""
