"""Equal tuning: the same number of trials and the same budget for every method."""
