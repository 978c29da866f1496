"""Parikh, Dupuy and Gupta (2022): canary extraction from intent-and-slot models."""
