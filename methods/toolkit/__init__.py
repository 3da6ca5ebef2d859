"""Building blocks that two or more methods share."""
