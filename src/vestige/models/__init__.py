"""Anything that can be asked what comes next: our networks, Hugging Face models, tables."""
