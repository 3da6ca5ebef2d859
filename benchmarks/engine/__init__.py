"""Compiled forward and backward passes of small models."""
