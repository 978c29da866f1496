"""How often is the verdict of `vestige check` wrong?"""
