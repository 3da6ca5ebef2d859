"""Damaged files: those of the wrong command lines, and forms of a damaged record."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


OTHER_TEXTS = {
    **{"empty": b"", "blank": b" \n", "zeros": b"\0" * 4096, "binary": b"\xff\xfe\x00\x80"},
    **{f"other {text[:12]!r}": text.encode() for text in ("null", "0", "true", '"a"', "[]", "{}")},
    "list": b"[1, 2]",
    "yaml": b"status: done\n",
    "html": b"<html><body>404</body></html>",
    "brackets": b"[" * 10**5,
    "braces": b'{"a":' * 10**5,
    "closed brackets": b"[" * 10**4 + b"]" * 10**4,
}
# Values in place of those of a record, as JSON.
OTHER_VALUES = {"null": "null", "text": '"text"', "negative": "-1", "zero": "0", "half": "0.5"}
OTHER_VALUES |= {"true": "true", "list": "[]", "object": "{}", "items": '[1, "a", null]'}
OTHER_VALUES |= {"keys": '{"name": 5}', "huge": "9" * 400, "infinite": "1e999", "nan": "NaN"}
OTHER_VALUES |= {"large": "1e300", "deep": "[" * 150 + "]" * 150, "endless": "9" * 10**4}
OTHER_VALUES |= {"markup": '"[/b] [red] </script> \\u0000"'}


def damaged_records(record: dict[str, Any], truncations: int = 60) -> dict[str, bytes]:
    """Damaged forms of a record by name: cut off, other content, missing keys, other values."""
    text = json.dumps(record).encode()
    cuts = range(1, len(text), max(len(text) // truncations, 1))
    forms = OTHER_TEXTS | {f"cut at {cut}": text[:cut] for cut in cuts}
    forms |= {
        "twice": text * 2,
        "bom": b"\xef\xbb\xbf" + text,
        "utf-16": text.decode().encode("utf-16"),
    }
    for path in _key_paths(record):
        name = ".".join(path)
        forms[f"without {name}"] = _replace(record, path, None)
        for kind, value in OTHER_VALUES.items():
            forms[f"{name} {kind}"] = _replace(record, path, value)
    return forms


def _key_paths(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from _key_paths(value, (*path, key))


def _replace(record: dict[str, Any], path: tuple[str, ...], value: str | None) -> bytes:
    """The record with JSON text in place of one value, or without its key."""
    changed = copy.deepcopy(record)
    section = changed
    for key in path[:-1]:
        section = section[key]
    if value is None:
        del section[path[-1]]
        return json.dumps(changed).encode()
    section[path[-1]] = "{value}"
    return json.dumps(changed).replace('"{value}"', value).encode()
