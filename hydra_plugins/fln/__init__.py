"""Hydra plugins of the suite: the sweeper and the search path of installed packages."""
