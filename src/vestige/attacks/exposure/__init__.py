"""How exposed are canaries, and which of them does a model complete?"""
