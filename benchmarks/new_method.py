"""Write the files of a new method: Python module, YAML file and test.

    fln new-method NAME                 in a clone of the suite
    fln new-method NAME package=DIR     in a new package with an entry point

Options:
  NAME           name of the method, such as label_smoothing
  package=DIR    directory of the new package; its last part is the name of the package

`python -m benchmarks.methods new NAME` is the same command. The files contain a small example that
passes the contract suite.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from benchmarks.terminal.command import Options, run_command
from methods.core.errors import UserError, invalid

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).parent / "templates"
# Files and their templates; an empty one stands for a docstring.
SUITE_FILES = {
    "methods/{name}.py": "method.py",
    "conf/method/{name}.yaml": "method.yaml",
    "tests/methods/test_{name}.py": "test_method.py",
}
PACKAGE_FILES = {
    "pyproject.toml": "pyproject.toml",
    "{package}/__init__.py": "",
    "{package}/{name}.py": "method.py",
    "{package}/conf/__init__.py": "",
    "{package}/conf/method/{name}.yaml": "method.yaml",
    "tests/test_{name}.py": "test_method.py",
}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(arguments, str(__doc__), {"name": "", "package": ""}, _run, words="name")


def _run(options: Options) -> int:
    name, directory = options["name"], options["package"]
    if not name or "," in name:
        raise UserError("missing NAME: fln new-method NAME")
    for path in write_method(name, Path(directory) if directory else None):
        print(f"wrote {path}")
    check = f"pytest tests/methods -k {name}"
    if directory:
        check = f"pip install --no-deps -e {directory}"
    print(f"next: {check}; fln run method={name} scale=smoke")
    return 0


def write_method(name: str, package_dir: Path | None) -> list[Path]:
    """Write the files of a method into the suite, or into a new package. Returns their paths."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise invalid("NAME", name, "lower-case letters, digits and underscores")
    title = name.replace("_", " ").capitalize()
    values = {"name": name, "title": title, "cls": title.title().replace(" ", "")}
    if package_dir is None:
        if not (ROOT / "tests" / "methods").is_dir():
            raise UserError(f"cannot write to {ROOT}: not a clone of the suite; set package=DIR")
        root, package = ROOT, "methods"
        templates = SUITE_FILES
    else:
        root, package = package_dir, re.sub(r"\W", "_", package_dir.resolve().name)
        templates = PACKAGE_FILES
    if not package.isidentifier():
        raise invalid("package", str(package_dir), "a directory whose name starts with a letter")
    values |= {"package": package, "distribution": package.replace("_", "-")}
    values["module"] = f"{package}.{name}"
    files = {root / path.format(**values): template for path, template in templates.items()}
    for path in files:
        if path.exists():
            raise UserError(f"cannot write {path}: it exists; choose another name or delete it")
    for path, template in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{template}.template").read_text() if template else '"""$title."""\n'
        path.write_text(Template(text).substitute(values))
    return list(files)


if __name__ == "__main__":
    sys.exit(main())
