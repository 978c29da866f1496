"""Which words, and which hidden units, does a model memorize?"""
