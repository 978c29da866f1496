"""Text, whose it is, and what we planted in it."""
