"""Audits of deletions: `vestige unlearning`."""
