"""Reports: what finished runs say, beside what the papers say.

Reads records of runs and the papers' published numbers, and writes tables, figures and pages; never runs an experiment.
`reports.published` holds the published numbers, with the configuration that each of them belongs to.
"""
