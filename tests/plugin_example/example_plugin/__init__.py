"""A package of somebody else's with one method. The suite finds it by its entry point, and its YAML by hydra.searchpath=[pkg://example_plugin.conf]."""
