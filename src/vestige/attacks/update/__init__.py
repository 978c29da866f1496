"""What did an update reveal? Two models in, ranked phrases out."""
