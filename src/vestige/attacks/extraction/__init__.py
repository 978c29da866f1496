"""Secrets read back from the weights of an intent-and-slot model."""
