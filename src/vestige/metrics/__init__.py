"""Statistics of arrays; no function here takes a model."""
