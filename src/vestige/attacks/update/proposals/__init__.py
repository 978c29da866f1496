"""What a search begins with: where in a text the update may have promoted something."""
