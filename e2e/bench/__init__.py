"""Speed, as ratios measured in one run on one broker: ours against the loop that does nothing."""
