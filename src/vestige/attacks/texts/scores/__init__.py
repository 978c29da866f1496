"""Scores of texts from token statistics, one file each; high where a text was used."""

from vestige.attacks.texts.scores.registry import SCORES as SCORES
