"""Text and models for an audit: canaries in a corpus, and trainings."""
