"""Whether a user's text was in the training data, from a model's top words."""
