"""The defences of `train`: one file each, found by `vestige.defences.registry`."""
