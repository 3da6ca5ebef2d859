"""The papers' figures, from records: `select` chooses the runs, `extract` makes numbers of them, the others draw."""
