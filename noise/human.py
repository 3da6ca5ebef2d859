"""Labels from human annotators, read from an .npz file, such as CIFAR-10N (Wei et al., ICLR 2022).

The file has one label array per key, in the sample order of the dataset. If it has an array
`clean_label`, that array must equal the labels of the dataset, which verifies the order.
"""

from pathlib import Path

import numpy as np

from methods.core.archives import read_arrays
from methods.core.errors import UserError, invalid, suggest
from methods.core.params import DataFile, parameters
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy


@parameters
class HumanParams:
    path: DataFile  # .npz file
    key: str = "worse_label"  # name of an array in the file


def apply_human(data: NoiseInput, params: HumanParams) -> Noisy:
    """Labels from human annotators, read from a file (CIFAR-10N)."""
    path, key = Path(params.path).expanduser(), params.key
    arrays = read_arrays(path, (key, "clean_label"))
    if key not in arrays:
        listed = suggest(key, read_arrays(path))
        raise UserError(f"unknown noise.key={key} in {params.path}: {listed}")
    given, clean = arrays[key], arrays.get("clean_label")
    if given.shape != data.labels.shape or not np.issubdtype(given.dtype, np.integer):
        found = f"{given.dtype}{given.shape}"
        raise invalid("noise.key", key, f"{len(data.labels)} integer labels, not {found}")
    if given.min() < 0 or given.max() >= data.num_classes:
        found = f"{given.min()} to {given.max()}"
        raise invalid("noise.key", key, f"labels from 0 to {data.num_classes - 1}, not {found}")
    if clean is not None and not np.array_equal(clean, data.labels):
        expected = "a file whose clean_label equals the labels of the dataset"
        raise invalid("noise.path", params.path, expected)
    given = given.astype(np.int64)
    return given, np.full(data.num_clients, float(np.mean(given != data.labels)))


CONVENTION = (
    "CIFAR-10N: labels are those of the annotators. The noise level of every client is the "
    "fraction of wrong labels in the whole dataset."
)
NOISE_MODELS.add(NoiseModel("human", HumanParams, apply_human, CONVENTION))
