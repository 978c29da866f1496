"""No deadlines: how long a single example takes says how busy the machine is."""

from hypothesis import settings

settings.register_profile("vestige", deadline=None)
settings.load_profile("vestige")
