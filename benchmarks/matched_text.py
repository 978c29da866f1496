"""How often is a p-value of someone who was never in small, by how much they wrote?

P(p <= 0.05) by quarter of the audited users' word counts, in six layouts of texts: by the rule that
stood before (whole texts of the others until the audited user's amount is reached, who has less
with all of it), and by that of `audits/membership/user_audit.py`; and how many are found who were
in. The evidence of a word is normal with deviation 1, a user's mean differs by 0.03, a text's by
0.1, and that of users who were in is higher by 0.15. Last, the false discoveries at a rate of 0.05
where half of the audited were in, by 0.4: everyone is compared with those who have text enough, and
the theorem on Benjamini and Hochberg's procedure is for one set for all.

    python benchmarks/matched_text.py [--trials 400]
"""

import argparse

import numpy as np

from vestige.audits.membership.user_audit import judge_users
from vestige.data.token_queries import TokenQueries

COMPARED, AUDITED, LEVEL = 99, 40, 0.05
OF_USER, OF_TEXT, GAIN, MORE = 0.03, 0.1, 0.15, 0.4


def long_texts(chance, audited):
    return [int(n) for n in chance.integers(300, 1001, chance.integers(1, 5))]


def short_texts(chance, audited):
    return [int(n) for n in chance.integers(5, 31, chance.integers(10, 61))]


def few_against(words, texts, length):
    """Audited users of about so many words in texts of 20, against users of longer texts."""

    def layout(chance, audited):
        if audited:
            count = int(words * chance.uniform(0.5, 1.5))
            return [20] * (count // 20) + [count % 20] * (count % 20 > 0)
        return [length] * (texts or int(chance.integers(1, 7)))

    return layout


def heavy_tailed(chance, audited):
    count = 1 + int(np.exp(chance.normal(1.5, 1.2)))
    return [max(1, int(n)) for n in np.exp(chance.normal(2.7, 0.9, min(count, 200)))]


LAYOUTS = {
    "few long texts": long_texts,
    "many short texts": short_texts,
    "100 words against texts of 300": few_against(100, None, 300),
    "30 words against texts of 300": few_against(30, None, 300),
    "100 words against four of 1,000": few_against(100, 4, 1000),
    "heavy tails": heavy_tailed,
}


def world(layout, chance, of_text):
    """Words of compared users, then of audited ones, and the evidence of each."""
    lengths = [layout(chance, user >= COMPARED) for user in range(COMPARED + AUDITED)]
    texts = np.array([length for own in lengths for length in own])
    owners = np.repeat(np.arange(len(lengths)), [len(own) for own in lengths])
    users = np.repeat(owners, texts).astype(np.int32)
    starts = np.repeat(np.cumsum(texts) - texts, texts)
    zeros = np.zeros(len(users), dtype=np.int32)
    asked = TokenQueries(
        users=users,
        texts=np.repeat(np.arange(len(texts), dtype=np.int32), texts),
        positions=(np.arange(len(users)) - starts).astype(np.int32),
        tokens=zeros,
        previous=zeros,
        names=tuple(f"user {n}" for n in range(len(lengths))),
    )
    means = chance.normal(0, OF_USER, len(lengths))[owners] + chance.normal(0, of_text, len(texts))
    return asked, np.repeat(means, texts) + chance.normal(size=len(users))


def whole_texts(asked, word_scores, chance):
    """P-values of the audited by the rule that stood before, written naively."""
    read = []
    for user in range(COMPARED + AUDITED):
        own = asked.users == user
        texts, inverse = np.unique(asked.texts[own], return_inverse=True)
        lots = chance.permutation(len(texts))
        words = np.bincount(inverse)[lots]
        read.append((np.cumsum(words), np.cumsum(np.bincount(inverse, word_scores[own])[lots])))
    found = []
    for words, sums in read[COMPARED:]:
        own, reached = sums[-1] / words[-1], 0
        for counts, totals in read[:COMPARED]:
            last = min(int(np.searchsorted(counts, words[-1])), len(counts) - 1)
            reached += totals[last] / counts[last] >= own
        found.append((1 + reached) / (1 + COMPARED))
    return np.array(found)


def cut_texts(asked, word_scores, seed):
    """P-values by `judge_users`, and who is called."""
    audited = range(COMPARED, COMPARED + AUDITED)
    judged = judge_users(asked, word_scores, audited, range(COMPARED), seed=seed)
    return np.array([judged.column("p_value"), judged.column("called")])


def discoveries(layout, trials):
    """Mean share of those called who were out, and share of those in who are called."""
    false, found = [], []
    for trial in range(trials):
        chance = np.random.default_rng([trial, 2])
        asked, word_scores = world(layout, chance, OF_TEXT)
        members = np.arange(COMPARED, COMPARED + AUDITED // 2)
        _, called = cut_texts(asked, word_scores + MORE * np.isin(asked.users, members), trial)
        inside, outside = called[: AUDITED // 2].sum(), called[AUDITED // 2 :].sum()
        false.append(outside / max(1, inside + outside))
        found.append(inside / (AUDITED // 2))
    return np.mean(false), np.mean(found)


def row(layout, trials, *, gain, of_text=OF_TEXT):
    """(2, 4) shares of p-values at or below the level: the old rule and the new, by quarter."""
    low, users = np.zeros((2, 4)), np.zeros(4)
    for trial in range(trials):
        chance = np.random.default_rng([trial, 1])
        asked, word_scores = world(layout, chance, of_text)
        word_scores = word_scores + gain * (asked.users >= COMPARED)
        both = whole_texts(asked, word_scores, chance), cut_texts(asked, word_scores, trial)[0]
        amounts = asked.counts()[COMPARED:]
        order = np.lexsort((chance.random(AUDITED), amounts))
        quarter = np.empty(AUDITED, dtype=int)
        quarter[order] = np.arange(AUDITED) * 4 // AUDITED
        users += np.bincount(quarter, minlength=4)
        for rule, p_values in enumerate(both):
            low[rule] += np.bincount(quarter, p_values <= LEVEL + 1e-12, minlength=4)
    return low / users


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=400)
    trials = parser.parse_args().trials
    print(f"{trials} trials of {AUDITED} audited users against {COMPARED}; quarters by words")
    shown = {
        "nobody was in": {"gain": 0.0},
        "nobody was in, texts alike": {"gain": 0.0, "of_text": 0.0},
        "all were in": {"gain": GAIN},
    }
    for title, how in shown.items():
        print(f"\nP(p <= {LEVEL:g}), {title}")
        print(f"{'':34}{'whole texts':26}cut to the word")
        for name, layout in LAYOUTS.items():
            before, after = row(layout, trials, **how)
            cells = ["  ".join(f"{share:.3f}" for share in rule) for rule in (before, after)]
            print(f"{name:34}{cells[0]}  {cells[1]}", flush=True)
    print(f"\n{'':34}false discoveries at 0.05; of those in, called")
    for name, layout in LAYOUTS.items():
        false, found = discoveries(layout, trials)
        print(f"{name:34}{false:.3f}  {found:.3f}", flush=True)


if __name__ == "__main__":
    main()
