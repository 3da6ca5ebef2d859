"""Example of another package with a method.

The suite finds the method by its entry point, and its YAML file by
`hydra.searchpath=[pkg://example_plugin.conf]`.
"""
