"""The options of `vestige train` that say under which defence, in which batches, and until when."""

from typing import Annotated, Literal

import typer

PANEL = "Defence"

Name = Annotated[
    Literal["none", "dp-sgd", "dp-fedavg", "adversarial", "triplet", "goldfish"],
    typer.Option(
        "--defence",
        help="`dp-sgd`: clipped, noised gradients, with a proof. `dp-fedavg`: the same for what "
        "users learn by themselves; a step is a round. `adversarial`, `triplet`: the privacy "
        "regularizers, which need users. `goldfish`: one token in four is never learnt.",
        rich_help_panel=PANEL,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="dp-sgd, dp-fedavg: this training spends at most so much, over all epochs planned. "
        "What earlier trainings of --from spent on the same records comes on top, and is told.",
        rich_help_panel=PANEL,
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="dp-sgd, dp-fedavg: the chance that the proof leaves open; at least 1e-12, and below "
        "1 / sequences (or users). Default: the power of ten below a tenth of that.",
        rich_help_panel=PANEL,
    ),
]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(
        "--noise-multiplier",
        help="dp-sgd, dp-fedavg: noise over clip, in place of --epsilon.",
        rich_help_panel=PANEL,
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(
        "--clip",
        help="dp-sgd, dp-fedavg: the norm that a sequence's (or user's) gradient, or a user's "
        "update, is cut to. `log.jsonl` says how many are: about half is a good start. Default: 1.",
        rich_help_panel=PANEL,
    ),
]
Unit = Annotated[
    Literal["sequence", "user"] | None,
    typer.Option(
        "--unit",
        help="dp-sgd: what the proof protects: a `sequence` (the default; of a document longer "
        "than --sequence-length, each piece), or a `user` with all of theirs.",
        rich_help_panel=PANEL,
    ),
]
Accountant = Annotated[
    str | None,  # not a Literal: that "gdp" is refused has a reason
    typer.Option(
        "--accountant",
        help="dp-sgd, dp-fedavg: who counts epsilon: `prv`, `pld` or `rdp`, all of them bounds. "
        "Default: `prv`.",
        metavar="NAME",
        rich_help_panel=PANEL,
    ),
]
NoiseSeed = Annotated[
    int | None,
    typer.Option(
        "--noise-seed-without-guarantee",
        min=0,
        help="dp-sgd, dp-fedavg: draw noise and lots from this seed, for tests that need the same "
        "bits twice. There is then no guarantee: whoever knows or tries the seed subtracts the "
        "noise. Default: the operating system's entropy.",
        metavar="SEED",
        rich_help_panel=PANEL,
    ),
]
AcceptPrivateVocabulary = Annotated[
    bool,
    typer.Option(
        "--accept-private-vocabulary",
        help="dp-sgd, dp-fedavg: train with a vocabulary that was made of DATA all the same. It "
        "is released with the model, without noise, and shows words that were said once.",
        rich_help_panel=PANEL,
    ),
]
PhysicalBatchSize = Annotated[
    int | None,
    typer.Option(
        "--physical-batch-size",
        min=1,
        help="dp-sgd: sequences computed at once, where a batch does not fit in memory.",
        rich_help_panel=PANEL,
    ),
]
LocalEpochs = Annotated[
    int | None,
    typer.Option(
        "--local-epochs",
        min=1,
        help="dp-fedavg: how often a user who is drawn reads their own text in a round. Default: "
        "1. --batch-size says how many users a round draws on average.",
        rich_help_panel=PANEL,
    ),
]
LocalBatchSize = Annotated[
    int | None,
    typer.Option(
        "--local-batch-size",
        min=1,
        help="dp-fedavg: texts that a user reads together. Default: 8.",
        rich_help_panel=PANEL,
    ),
]
LocalLearningRate = Annotated[
    float | None,
    typer.Option(
        "--local-learning-rate",
        help="dp-fedavg: of a user's own steps, which are plain SGD. Default: 1. --learning-rate "
        "is the server's, 1 unless `--optimizer adam` is given.",
        rich_help_panel=PANEL,
    ),
]
Weight = Annotated[
    float | None,
    typer.Option(
        "--weight",
        help="adversarial, triplet: lambda of the privacy term. Default: 1 and 0.1.",
        rich_help_panel=PANEL,
    ),
]
Pairing = Annotated[
    Literal["auxiliary", "in-batch"] | None,
    typer.Option(
        "--pairing",
        help="triplet: pairs with a second batch, as in the paper, or within the batch. Default: "
        "`auxiliary`.",
        rich_help_panel=PANEL,
    ),
]
GoldfishK = Annotated[
    int | None,
    typer.Option(
        "--goldfish-k",
        min=2,
        help="goldfish: one token in k is left out. Default: 4.",
        rich_help_panel=PANEL,
    ),
]
Batching = Annotated[
    Literal["stream", "documents", "users", "poisson", "poisson-users"] | None,
    typer.Option(
        "--batching",
        help="`stream`: all text in one row after the other. The others read each document by "
        "itself: `documents` mixed, `users` one user at a time, `poisson` and `poisson-users` by "
        "lot. Default: what suits the defence.",
        rich_help_panel="Training",
    ),
]
StopAtPerplexity = Annotated[
    float | None,
    typer.Option(
        "--stop-at-perplexity",
        help="End once the validation perplexity is this low, so that models of equal utility can "
        "be compared.",
        rich_help_panel="Training",
    ),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        "--evaluate-every",
        min=1,
        help="Steps between two looks at the validation text; default: an epoch.",
        rich_help_panel="Training",
    ),
]
