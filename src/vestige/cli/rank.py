def command() -> None:
    """Soon."""
