"""Configuration directory. It is a package because Hydra searches in packages."""
