"""What is compared: one file per method behind one contract (`base.py`), found by the registry."""
