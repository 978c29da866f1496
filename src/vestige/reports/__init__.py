"""Run folders in, one self-contained page out; never sees a model."""
