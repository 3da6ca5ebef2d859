"""Files that the collection of wrong command lines refers to."""

from pathlib import Path

import numpy as np

LISTS = ("noisy_train_key_list.txt", "noisy_label_kv.txt")
LISTS += ("clean_test_key_list.txt", "clean_label_kv.txt")
CONFIGS = {
    "method": {"bad": "name: [", "notyaml": "\x00\x01", "list": "- a\n", "defaults": "defaults: 5"},
    "experiment": {"bad": "rows: 5\n", "list": "- a\n", "rows": "rows: {a: 5}\n"},
    "protocol": {"bad": "[", "list": "- 1\n"},
}


def write_damaged_files(root: Path) -> None:
    """Damaged datasets, label files and configuration directories, and an empty `records`."""
    (root / "file").write_text("text")
    (root / "folder.png").mkdir()
    (root / "records").mkdir()
    (root / "text.npz").write_text("no archive")
    (root / "empty.npz").write_bytes(b"")
    images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 4
    variants = {"good": labels, "negative": labels - 1, "object": labels.astype(object)}
    for name, largest in (("label", 2**60), ("classes", 10**7)):
        variants[name] = np.append(labels[:-1], largest)
    for name, variant in variants.items():
        arrays = {"train_labels": variant, "test_images": images, "test_labels": labels}
        np.savez(root / f"{name}.npz", train_images=images, **arrays)
    for kind in ("empty", "binary", "directory", "label"):
        _write_clothing1m(root / f"tree_{kind}" / "clothing1m", kind)
    for group, files in CONFIGS.items():
        (root / "badconf" / group).mkdir(parents=True)
        for name, text in files.items():
            (root / "badconf" / group / f"{name}.yaml").write_text(text)


def _write_clothing1m(tree: Path, kind: str) -> None:
    (tree / "images").mkdir(parents=True)
    content = {"empty": b"", "binary": b"\xff\xfe\x00\x80", "label": b"images/a.jpg 99999\n"}
    for name in LISTS:
        is_labels = name.endswith("_kv.txt")
        if kind == "directory":
            (tree / name).mkdir()
        elif is_labels == (kind != "empty") and kind in content:
            (tree / name).write_bytes(content[kind])
        else:
            (tree / name).write_text("images/a.jpg 1\n" if is_labels else "images/a.jpg\n")
