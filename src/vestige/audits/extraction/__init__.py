"""What can be extracted from a model: canaries, secrets, passages of texts, unknown words."""
