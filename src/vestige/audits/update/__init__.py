"""What did an update reveal?"""
