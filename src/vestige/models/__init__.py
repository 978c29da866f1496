"""Language models: our networks, Hugging Face models, tables."""

import logging

# On a CPU this library logs at every import that a hub kernel is missing, which Vestige never uses.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
