"""How well does a model know canaries or secrets?"""
