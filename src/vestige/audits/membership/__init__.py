"""Was this text, or this user's text, used in training?"""
