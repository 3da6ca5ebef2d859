"""Configuration of the suite: one directory of YAML files per config group."""
