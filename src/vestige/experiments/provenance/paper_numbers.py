"""What Song and Shmatikov (2019), arXiv:1811.00513, report: Tables 1 to 3 and 5."""

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
