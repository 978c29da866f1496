"""Memorization by word frequency, rank and hidden unit."""
