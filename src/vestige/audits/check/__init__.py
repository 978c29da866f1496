"""Can this fine-tune be released?"""
