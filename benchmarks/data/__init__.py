"""Datasets by name: uint8 tensors or lazily decoded files, with the transforms of each view.

`Dataset` and `load` need torch. They are imported at first use, so that listing stays fast.
"""

from typing import TYPE_CHECKING, Any

from benchmarks.data.registry import DATASETS, VIEWS, default_data_dir

if TYPE_CHECKING:
    from benchmarks.data.dataset import Dataset, load

__all__ = ["DATASETS", "VIEWS", "Dataset", "default_data_dir", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from benchmarks.data import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
