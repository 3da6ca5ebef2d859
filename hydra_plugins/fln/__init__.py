"""Hydra plugins of the suite: sweeper, Ray launcher, search path, protocols, help text."""
