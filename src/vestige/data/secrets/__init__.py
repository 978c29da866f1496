"""Secrets that users have: how they are recognized, and other texts of their format."""
