"""Zanella-Béguelin et al. (2020): updates of language models."""
