"""Training with a guarantee of differential privacy: clipping, noise, accounting, statement."""
