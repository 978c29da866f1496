"""Data in, model out: one loop, two doors for defences (StepFn, StopFn), three kinds of update."""
