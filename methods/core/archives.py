"""Arrays of .npz files, read without pickles."""

from collections.abc import Container
from pathlib import Path

import numpy as np

from methods.core.errors import UserError, first_line


def read_arrays(path: Path, names: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file, or those of `names` that it has. Raises UserError."""
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            wanted = [name for name in archive.files if names is None or name in names]
            arrays = {name: archive[name] for name in wanted}
            if other := [name for name in arrays if not isinstance(arrays[name], np.ndarray)]:
                raise ValueError(f"{other[0]} is no array")
            return arrays
    except Exception as error:  # A damaged archive can cause every kind of error.
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        reason = f"not an .npz file of plain arrays ({type(error).__name__}: {first_line(error)})"
        raise UserError(f"cannot read {path}: {reason}") from error
