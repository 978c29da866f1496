"""What each kind of result does not say, in words for its reader."""

_ALWAYS = (
    "Redaction on this page is for reading over a shoulder: the run directories beside it hold "
    "every phrase in the clear.",
)

_LIMITS = {
    "UpdateDiff": (
        "A high score says that the second model prefers this text more than the first did. It "
        "does not prove that the text stood in the training data: models also compose.",
        "A phrase that is missing here is not thereby safe. The search is a heuristic, and "
        "knowing part of a phrase can reveal the rest (a rank’s profile shows how much).",
        "An E-value counts null searches: what it states holds where the null models were made as "
        "the update was, on as much text of the same kind. Text of another kind also changes what "
        "is common.",
        "An extrapolated E-value assumes the shape of a tail and decides nothing. It errs more "
        "often than it states where null searches are few.",
        "Scores of different searches, scores or token vocabularies are not comparable.",
    ),
    "DifferentialRank": (
        "The rank counts token sequences of the same length only, in this vocabulary's tokens.",
        "Bounds are proven. Where between them the rank lies is estimated from samples, which can "
        "miss phrases that are many and each unlikely to be drawn: an estimate proves nothing.",
        "A rank measures this phrase in this pair of models: the same phrase after another "
        "update, or in another context, has another.",
        "A low probability without a prefix does not protect the end of a phrase from someone "
        "who knows its beginning: read the profile.",
    ),
    "DefenceComparison": (
        "A verdict takes three trainings of each, with different seeds: intervals are over "
        "trainings, and differences over canaries, documents or users as well. From one training "
        "of each the numbers say what these models do, not what the defence does.",
        "Exposure counts as far as ranks resolve it; canaries that are likelier than every "
        "reference under all trainings tell nothing about a difference.",
        "Seconds depend on what else the machine did; trainings are compared by steps and tokens.",
        "The canaries are random words. A defence that hides them need not hide names, addresses "
        "or sentences that many users write.",
        "A measured ε is a lower bound: that it is small proves nothing. Only a claimed ε bounds "
        "what an attacker that nobody has thought of can learn, and only for the unit that it "
        "names.",
        "Differences hold together for all defences (Bonferroni); single values hold one by one.",
    ),
    "DefendedTraining": (
        "A guarantee is a proof about the training, not a measurement: nothing on this page was "
        "measured of what the model gives away.",
        "Perplexities, losses and norms are computed without noise, from the text itself: this "
        "page is no more for release than the directory that it was made of.",
        "What many people wrote is no one's secret to a guarantee for one of them: the model may "
        "learn it.",
    ),
    "CanaryExposure": (
        "Exposure compares a canary with phrases of as many random words. Of one that is likelier "
        "than every phrase of a sample only a bound is known (≥): two such canaries cannot be told "
        "apart, and more references or exact ranks say more.",
        "A skew-normal fit goes on beyond the references, but nothing there checks it: two equal "
        "trainings differ in it by bits. It is in the run's rows, marked as extrapolated, and in "
        "no headline, chart or verdict.",
        "Half of the canaries that were never planted reach 1 bit, and one in 2^x reaches x.",
        "What the same words reach in another order is word frequency, not memory of the "
        "sequence; only what the canary has beyond it is.",
        "Intervals of medians take canaries as drawn alike and each by itself. They say nothing "
        "about another training of the same kind: repeat it with other seeds for that.",
    ),
    "Extraction": (
        "A model that prefers some words has not thereby read them: without the truth, controls "
        "or a model that never saw the data, certainty proves nothing.",
        "A truth that is not the best guess is not thereby safe: an attacker who may try several "
        "needs as many tries as its rank.",
        "Exposure is log2 of all secrets less log2 of the rank. Where no secret of a sample loses "
        "as little, the rank is an upper bound (≤) and the exposure a lower one (≥). Chance alone "
        "gives 1.44 bits on average.",
        "The attacker is given weights, words, intent, tags and candidates; one who knows less "
        "learns less.",
    ),
    "SecretAudit": (
        "That a leak is not shown does not say that there is none: another objective, another "
        "prefix or more copies may show it.",
        "A secret is compared with others drawn by the same rule that were never said, in the same "
        "models. The p-value is exact whatever words a model prefers; it holds for secrets that "
        "were drawn at random, which a secret of your own choice was not.",
        "Planted secrets are random words: real ones that are likelier from the start, such as "
        "dates, are guessed sooner.",
        "Exposure is log2 of all secrets less log2 of the rank. Where no secret of a sample loses "
        "as little, the rank is an upper bound (≤) and the exposure a lower one (≥). Chance alone "
        "gives 1.44 bits on average.",
        "Intervals take secrets as drawn alike and each by itself. They say nothing about "
        "another training of the same kind: repeat it with other seeds for that.",
    ),
    "Anatomy": (
        "Seen and unseen text must differ in training only. Another time, topic or kind of people "
        "makes the same differences; the null, two halves of the unseen text, does not show that.",
        "Where the seen text says how frequent words are, its rare words are not those of the "
        "unseen text, for any model: only the same words in both texts compare fairly.",
        "With few people, or few texts, intervals are too narrow: twenty of each at least.",
        "A model that hardly ever lists a rare word first has no accuracy to lose there: then read "
        "how far down words fall.",
        "That a unit matters to rare words does not say that it holds them: units are silenced at "
        "the head only, and many units together say what none says alone.",
        "Intervals say nothing about another training of the same kind: repeat it with other "
        "seeds for that.",
    ),
    "UserAudit": (
        "A p-value is not the chance that a text was used. It says how often somebody whose text "
        "was not used would come as far.",
        "What is not shown is not thereby excluded: few words, few shown words or a model that "
        "learnt little hide what there is.",
        "Membership is of the words: copies and quotations by others count as well, and nothing "
        "is said about who gave the text, when, or whether they were allowed to.",
        "The comparison is fair only with people who write about the same things, at the same "
        "time, in the same kind of text. Somebody wrongly held to be out makes the audit weaker, "
        "but raises no false alarm.",
        "An audit that is repeated with other options until it says yes says nothing. Choose the "
        "options first, and ask once.",
        "Among users who are named, the stated share of wrong ones is an average over audits.",
    ),
    "Completion": (
        "A canary that is not completed is not thereby safe: a longer prefix, a wider beam, "
        "sampling, or a look at the probabilities may still give it away (see its exposure).",
        "Intervals take canaries as drawn alike and each by itself. They say nothing about "
        "another training of the same kind: repeat it with other seeds for that.",
        "Of canaries that begin alike, greedy decoding completes one at most.",
    ),
}


def limits_of(result: str) -> tuple[str, ...]:
    """The limits of a result by the name of its class."""
    return (*_LIMITS.get(result, ()), *_ALWAYS)
