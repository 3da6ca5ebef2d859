"""Built-in datasets. Each module adds its datasets to the registry. No module imports torch."""
