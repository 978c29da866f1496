"""Canaries: phrases of running text and secrets in labelled utterances, and their planting."""
