"""The command line: one verb, one file. `main` holds the table of verbs."""
