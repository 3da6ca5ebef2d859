"""Labels that people gave, read from an .npz file; for instance CIFAR-10N (Wei et al., ICLR 2022).

The file holds one label array per key, in the order of the data set. If it also holds `clean_label`, that must equal
the data set's labels: it shows that the orders agree.
"""

import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .base import NoiseError, NoiseModel, check


@dataclass(frozen=True)
class HumanParams:
    path: str  # the .npz file
    key: str = "worse_label"  # which array in it

    def __post_init__(self) -> None:
        check(
            "path",
            self.path,
            isinstance(self.path, str) and self.path != "",
            "the path of an .npz file",
        )
        check(
            "key",
            self.key,
            isinstance(self.key, str) and self.key != "",
            "the name of an array in the file",
        )


def draw(
    labels: np.ndarray, parts: list[np.ndarray], num_classes: int, seed: int, params: HumanParams
) -> tuple[np.ndarray, np.ndarray]:
    given, clean = read(params.path, params.key)
    is_label_vector = given.shape == labels.shape and np.issubdtype(given.dtype, np.integer)
    check(
        "key",
        params.key,
        is_label_vector,
        f"{len(labels)} integer labels; it holds {given.dtype}{given.shape}",
    )
    in_range = bool(((given >= 0) & (given < num_classes)).all())
    check(
        "key",
        params.key,
        in_range,
        f"labels in [0, {num_classes}); it holds {given.min()} to {given.max()}",
    )
    same_order = clean is None or np.array_equal(clean, labels)
    check(
        "path",
        params.path,
        same_order,
        "a file whose clean_label equals the labels of the data set, in its order",
    )
    result = given.astype(np.int64)
    return result, np.full(len(parts), float(np.mean(result != labels)))


def read(path: str, key: str) -> tuple[np.ndarray, np.ndarray | None]:
    # The file is opened here: numpy leaves it open when its content is not an archive.
    with ExitStack() as stack:
        try:
            archive = np.load(
                stack.enter_context(open(Path(path).expanduser(), "rb")), allow_pickle=False
            )
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise NoiseError(
                f"noise.path={path!r}: must be a readable .npz file ({type(error).__name__})"
            ) from error
        check(
            "path",
            path,
            isinstance(archive, np.lib.npyio.NpzFile),
            "an .npz file, not a single array",
        )
        stack.enter_context(archive)
        check("key", key, key in archive.files, f"one of {', '.join(archive.files)} in {path}")
        try:
            return archive[key], archive["clean_label"] if "clean_label" in archive.files else None
        except ValueError as error:
            raise NoiseError(
                f"noise.key={key!r}: must be plain integers in {path}, not pickled objects"
            ) from error


MODEL = NoiseModel(
    name="human",
    params=HumanParams,
    function=draw,
    one_line="labels given by people, read from a file (CIFAR-10N)",
    convention="CIFAR-10N: the labels are as annotators gave them; every client's level is the share of wrong labels "
    "in the whole data set.",
)
