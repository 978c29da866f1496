"""Reports of run folders: pages, notebooks, cards and terminal output, made without models."""
