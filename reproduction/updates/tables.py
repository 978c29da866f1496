"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1, its numbers beside ours.

Differs from the paper: comments of eight college subreddits replace its Reddit, WikiText-2
replaces WikiText-103; all patterns are planted in one updated model (they share no words); each
model is trained from fixed seeds. The notes of the tables state the other differences.
"""

from reproduction.updates import added_text, canary_tables, subwords

__all__ = ["added_text", "canary_tables", "subwords"]
"""Modules that declare the tables."""
