"""Models behind a server or a function: questions are sent once, within a budget."""
