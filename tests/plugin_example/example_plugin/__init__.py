"""Example of another package with a method, a noise model, a partition, a dataset and a model.

The suite finds them by their entry points, and their YAML files by
`hydra.searchpath=[pkg://example_plugin.conf]`.
"""
