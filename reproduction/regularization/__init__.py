"""Mireshghallah et al. (2021): privacy regularization."""
