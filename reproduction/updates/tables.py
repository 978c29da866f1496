"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1, its numbers beside ours.

Differs from the paper: comments of eight college subreddits stand in for its Reddit, WikiText-2
for WikiText-103; all patterns are planted in one updated model (they share no words); each model
is trained from fixed seeds. The notes of the tables say what else differs.
"""

from reproduction.updates import added_text, canary_tables, private_updates, subwords

__all__ = ["added_text", "canary_tables", "private_updates", "subwords"]
"""Modules that declare the tables."""
