"""Reports: compare run records with the published results.

Reads run records and published tables, and writes tables, figures and HTML reports. Runs nothing.
"""
