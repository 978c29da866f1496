"""Vestige inside other libraries' trainings."""
