"""Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", arXiv:1912.07942: Tables 1 to 5 and Figure 1.

Differs from the paper: comments on eight college subreddits stand in for its Reddit, WikiText-2
for WikiText-103; all patterns are planted in one updated model (they share no words); each model
is trained once, with the seeds that the configurations name, where the paper fixes none.
"""
