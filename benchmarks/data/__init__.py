"""Data sets by name, as uint8 tensors or lazily decoded files, and the views of a batch that training uses.

`load` and what it returns need torch, and are imported at first use: listing the data sets must not wait for that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.data.catalogue import VIEWS, default_data_dir, names, status

if TYPE_CHECKING:
    from benchmarks.data.dataset import Dataset, load
    from benchmarks.data.images import Images
    from benchmarks.data.views import Views

__all__ = ["VIEWS", "Dataset", "Images", "Views", "default_data_dir", "load", "names", "status"]

_NEED_TORCH = {"Dataset": "dataset", "load": "dataset", "Images": "images", "Views": "views"}


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
