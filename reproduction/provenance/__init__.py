"""Song and Shmatikov (2019): auditing data provenance."""
