"""Training: data in, model out; one loop with hooks for defences."""
