"""The command line: `app` calls verbs, `options` reads their arguments, `help` shows them."""
