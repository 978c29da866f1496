"""Formats of corpora and of labelled utterances."""
