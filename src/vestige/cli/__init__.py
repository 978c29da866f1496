"""The command line: `app` calls verbs, `parsing` reads their arguments, `help` shows them."""
