"""Audits: one folder per question, with its verb and its report."""
