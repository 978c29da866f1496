"""Vestige measures what a text model gives away about the text it was trained on."""

__version__ = "0.1.0"
