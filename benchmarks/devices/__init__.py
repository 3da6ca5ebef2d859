"""Command that lists devices, compares one with the CPU, and counts the operations of runs."""
