"""Numbers of Song and Shmatikov (2019), arXiv:1811.00513, and the texts of our tables of them."""

from dataclasses import dataclass

PAPER_TABLE1 = {  # accuracy on training and test text, perplexity on both
    "reddit": (0.184, 0.206, 102.22, 113.14),
    "sated": (0.587, 0.535, 6.36, 10.28),
    "cornell": (0.283, 0.264, 45.57, 61.11),
}
PAPER_TABLE2 = {"reddit": 0.993, "sated": 0.981, "cornell": 0.998}  # AUC
PAPER_TABLE3 = {  # AUC by words shown, shadows of the same domain and of another
    "reddit": {
        1: (0.549, 0.589),
        5: (0.572, 0.525),
        10: (0.602, 0.552),
        50: (0.648, 0.659),
        100: (0.788, 0.714),
        500: (0.998, 0.992),
        1000: (0.999, 0.999),
    },
    "sated": {
        1: (0.785, 0.785),
        5: (0.838, 0.834),
        10: (0.880, 0.878),
        50: (0.973, 0.979),
        100: (0.981, 0.978),
        500: (0.988, 0.988),
        1000: (0.984, 0.985),
    },
    "cornell": {
        1: (0.618, 0.618),
        5: (0.642, 0.643),
        10: (0.645, 0.638),
        50: (0.660, 0.610),
        100: (0.714, 0.669),
        500: (0.975, 0.969),
        1000: (0.995, 0.992),
    },
}
PAPER_TABLE5 = {"none": 1.0, "google": 0.858, "yandex": 0.782}  # AUC; Japanese and back


@dataclass(frozen=True)
class TableText:
    """What a table is called and says.

    Attributes:
        title: above it.
        note: below it.
        columns: shown before `SHOWN`; none: all columns.
    """

    title: str
    note: str = ""
    columns: tuple[str, ...] = ()


SHOWN = (
    *("ratio", "audit", "auc", "auc_low", "auc_high", "paper_auc", "tpr_at_fpr_1"),
    *("accuracy", "accuracy_low", "accuracy_high", "precision", "recall", "false_positive_rate"),
)
AUDITS = (
    "`paper` is the paper's audit (histogram of ranks, LinearSVC), `ours` evidence of words "
    "learnt from shadow models, less what is expected of users who are out; `ratio` is the "
    "target's perplexity out over in. AUCs have DeLong's intervals, with a user more at either "
    "end of both sides, decisions Clopper and Pearson's; ours calls whose p-value is at most "
    "0.05."
)
TABLES = {
    "table1": TableText("Table 1: word accuracy and perplexity", "In: members' text."),
    "audit": TableText("Section 4.3: the whole vocabulary", AUDITS, ("dataset",)),
    "table2": TableText("Table 2: shadows of other hyper-parameters", AUDITS, ("dataset",)),
    "table3": TableText("Table 3: output size", AUDITS, ("dataset", "domain", "k")),
    "figure2": TableText("Figure 2: users", AUDITS, ("users", "k")),
    "figure3": TableText(
        "Figure 3: queries",
        f"{AUDITS} `words`: queries are single words, not texts.",
        ("dataset", "k", "words", "selection", "queries"),
    ),
    "figure4": TableText("Figure 4: noise", AUDITS, ("noise", "members")),
    "table5": TableText("Table 5: obfuscated comments", AUDITS, ("obfuscation",)),
    "null": TableText(
        "The null: p-values of people who were never in",
        "Whole audits, all redrawn: intervals are over audits. `attainable` is the share "
        "that p-values of so many compared people can reach; quarters, of words of the "
        "audited from the fewest on, are for p-values of at most 0.05. Without `k` the whole "
        "vocabulary is shown.",
    ),
    "private": TableText(
        "DP-FedAvg",
        AUDITS,
        ("epsilon", "delta", "accuracy_in", "accuracy_out", "perplexity_out", "k"),
    ),
    "figure8": TableText(
        "Figure 8: predicted ranks of the private model",
        "Mean predicted rank of words by their rank in the training text's frequencies.",
    ),
    "figures5-7": TableText(
        "Figures 5 to 7: where the memory sits",
        "Words by frequency in the training text; gaps are unseen less seen.",
    ),
}
