"""Trainings that give away less, and how they compare."""
