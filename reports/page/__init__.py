"""One HTML file of many runs, to be opened from disk.

`cells` sorts runs, `traces` packs what one run left, `collect` makes data of both, `write` puts data, scripts and
styles into one file. Numbers are computed here, with the code of the other reports; the page draws.
"""
