"""The plumbing of the suite: data, models, scenes, the round loop and what a finished run leaves on disk."""
