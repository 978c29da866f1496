"""Corpora, vocabularies, canaries and files."""
