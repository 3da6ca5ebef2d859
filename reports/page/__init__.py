"""HTML report: all runs in one self-contained file, opened from disk.

`leaderboard` groups and aggregates runs, `traces` compresses the files of a run, `collect` builds
the page data, `write` renders the file. All numbers are computed in Python; the scripts plot.
"""
