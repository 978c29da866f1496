"""Arrays in, numbers out. Nothing here has seen a model."""
