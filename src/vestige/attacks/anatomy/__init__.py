"""Where in its words and hidden units a model memorizes."""
