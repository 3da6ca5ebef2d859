"""Figures of the papers: `select` picks runs, `extract` computes data, the other modules plot."""
