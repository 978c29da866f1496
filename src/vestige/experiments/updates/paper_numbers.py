"""The numbers of the update paper: Tables 1 to 5 and those of its section on privacy (RQ5).

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942. WikiText-103 stands under the name of our text, WikiText-2.
"""

from vestige.experiments.texts import NEWSGROUPS

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
