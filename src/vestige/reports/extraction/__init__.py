"""Reports of `vestige extract-nlu`."""
