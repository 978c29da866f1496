"""Language models: our networks, Hugging Face models, tables."""
