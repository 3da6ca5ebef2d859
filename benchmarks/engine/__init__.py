"""Compiled forward and backward passes. The only package that uses private parts of torch."""
