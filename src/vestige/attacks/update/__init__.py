"""Attacks on model updates: two snapshots in, ranked phrases out."""
