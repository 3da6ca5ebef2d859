"""Core of the methods: contract, registry, flat model, random streams, training loop."""
