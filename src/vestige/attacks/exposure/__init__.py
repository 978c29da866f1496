"""Exposure of canaries, and their completion by a model."""
