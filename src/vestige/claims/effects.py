"""The size of a leak that "no leak shown" must exclude, by kind of audit.

"No leak shown" requires that a leak of this size would have been detected with 80% power, or that
it is outside the 95% interval. The page states each limit. The limits are conventions: large enough
to be tested with a few dozen texts or a dozen canaries, and small enough that a smaller leak helps
an attacker little.
"""

LIST_AUC = 0.65
"""Membership of texts: probability that a used text scores above an unused one. At 0.65, an
attacker who must pick the used one of two texts is right in 65 of 100 cases; guessing gives 50."""

USER_AUC = 0.75
"""Membership of users: the same for all texts of a user. It is the same leak: if single texts have
an AUC of 0.65, three independent texts of a user have 0.75, and five have 0.81."""

EXPOSURE_BITS = 2.0
"""Exposure of canaries minus that of controls: 2 bits save an attacker three of four guesses."""

PROMOTED_TOKENS = 8
"""`diff`: length of the shortest phrase that scores above all null models if the update raises its
probability from 0 to 1. Eight tokens are about six words or two numbers. If null models hide longer
phrases, the search gives no information on short secrets."""

EXTRACTED_SHARE = 0.05
"""Extraction: share of passages minus that of the reference. A share of texts is too imprecise: if
one text in seven contains a common phrase, the share of 70 texts is known to 10 points only (of 14
clean lists of about 70 texts, 1 was decided by texts, and 14 by passages)."""

COMPLETED_SHARE = 0.25
"""Completion: share of planted canaries or listed secrets."""

KNOWLEDGE_LEFT = 0.25
"""Unlearning: remaining share of the earlier model's knowledge of the deleted texts."""
