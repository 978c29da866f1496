"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1, its numbers beside ours.

Differs from the paper: comments of eight college subreddits stand in for its Reddit, WikiText-2
for WikiText-103; all patterns are planted in one updated model (they share no words); each model
is trained from fixed seeds. The notes of the tables say what else differs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reproduction.paper_numbers import paper_numbers
from reproduction.reproduction import Part, Plan, caption, run_paper
from reproduction.texts import NEWSGROUPS
from reproduction.updates.added_text import (
    Addition,
    Persistence,
    addition_plan,
    on_topic_counts,
    persistence_plan,
)
from reproduction.updates.beam_search import Beams
from reproduction.updates.canary_tables import (
    CanaryCopies,
    Extension,
    copies_plan,
    extension_plan,
    profile_chart,
    profile_plan,
)
from reproduction.updates.private_updates import PrivateUpdate, private_plan
from reproduction.updates.searches import PAIRS_AND_OPENINGS
from reproduction.updates.settings import Setting, preset_setting
from reproduction.updates.subwords import Subwords, subword_plan
from vestige.models.recurrent_network import LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig

HOCKEY, POLITICS = NEWSGROUPS
_KEYS = {"table1": 4, "table2": 3, "tables3-4": 4, "table5": 1, "rq5": 1}
PAPER = {
    name: paper_numbers("updates", name.replace("-", ""), key=key) for name, key in _KEYS.items()
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
_REDDIT_COPIES = CanaryCopies(setting=_REDDIT, copies=(5, 50, 500))
_THIRD = 6_800_000  # words of D_orig, D_extra and D'_extra each: together nearly all of Reddit

FULL = Scale(
    table1={
        "table1": _PTB,
        "table1-reddit-rnn": _REDDIT_COPIES,
        "table1-reddit-transformer": replace(_REDDIT_COPIES, setting=_REDDIT_TRANSFORMER),
        "table1-wikitext": CanaryCopies(setting=_WIKITEXT, copies=(20, 100)),
    },
    table2=Extension(setting=replace(_REDDIT, words=_THIRD), copies=(2, 20), phrases=4),
    tables34=tuple(
        Addition(setting=setting, added=NEWSGROUPS) for setting in (_REDDIT, _REDDIT_TRANSFORMER)
    ),
    table5=Persistence(setting=replace(_REDDIT, words=_THIRD), added=POLITICS),
    figure1=_REDDIT_COPIES,
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
_PART_COPIES = CanaryCopies(setting=_PART_LSTM, copies=(5, 50, 500), budget=2_000)
SMALL = Scale(
    table1={
        "table1": _PTB,
        "table1-reddit-rnn": replace(_PART_COPIES, trainings=3),
        "table1-reddit-transformer": replace(_PART_COPIES, setting=_PART_TRANSFORMER),
        "table1-wikitext": replace(_PART_COPIES, setting=_PART_WIKITEXT, copies=(20, 100)),
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
        "table1-reddit-transformer": replace(_TINY_COPIES, setting=_TINY_TRANSFORMER, copies=(5,)),
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
        searches=(replace(PAIRS_AND_OPENINGS, pairs=50, max_tokens=8), Beams(length=3, floor=10)),
    ),
    rq5=PrivateUpdate(
        trial=_TINY_COPIES,
        private=replace(_LOTS, epochs=2, batch_size=100, sequence_length=10),
        copies=20,
    ),
)


def parts_of(scale: Scale) -> dict[str, Part]:
    """The tables of the paper at one scale, by name."""
    return {
        **{name: _canaries(of) for name, of in scale.table1.items()},
        "table2": _part(
            "table2", scale.table2, extension_plan, values={"words": scale.table2.setting.words}
        ),
        "tables3-4": _part("tables3-4", scale.tables34, addition_plan, remark=on_topic_counts),
        "table5": _part("table5", scale.table5, persistence_plan),
        "figure1": _part(
            "figure1",
            scale.figure1,
            partial(profile_plan, patterns=("all-low", "high-to-low")),
            folder="table1",
            draw=profile_chart,
        ),
        "subwords": _part("subwords", scale.subwords, subword_plan),
        "rq5": _part("rq5", scale.rq5, private_plan, folder="table1"),
    }


def _part(
    name: str,
    of: object,
    plan: Callable[..., Plan],
    *,
    folder: str | None = None,
    values: Mapping[str, object] | None = None,
    **more: Any,
) -> Part:
    """A table whose plan is told what is computed and, where the paper has them, its numbers."""
    paper = {"paper": PAPER[name]} if name in PAPER else {}
    return Part(
        **caption("updates", name, **(values or {})),
        folder=folder or name,
        settings=of,
        plan=partial(plan, of, **paper),
        **more,
    )


def _canaries(of: CanaryCopies) -> Part:
    """One text and model of Table 1."""
    words = of.setting.words
    values = {
        "name": of.setting.name,
        "trainings": of.trainings,
        "amount": "the whole text" if words is None else f"{words:,} words of the text",
        "vocabulary": of.setting.vocabulary_size,
    }
    return replace(_part("table1", of, copies_plan, values=values), settings=(of,))


run = partial(run_paper, parts_of)
"""Fill these tables at a scale; see `reproduction.run_paper`."""
