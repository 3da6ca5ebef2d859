"""Methods: one file per method, behind the contract of `methods.core`."""
