"""Language models: our networks, Hugging Face models, tables."""

import logging

# On a processor it says at every import that it has no kernel from a hub, which nothing here uses.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
