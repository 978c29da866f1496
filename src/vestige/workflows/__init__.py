"""The questions that Vestige answers, one function each.

A workflow takes models, corpora and settings, computes, and returns a frozen result with its
provenance. It never prints: it reports to a `vestige.monitor.Monitor`. Its signature and docstring
are the options of its verb, their help, its page in `docs/verbs` and the keys of a configuration
file. Importing one imports no model library.
"""
