"""Questions about single texts: whether a model was trained on them, and what it gives back."""
