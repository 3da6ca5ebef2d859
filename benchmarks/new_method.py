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
from functools import partial
from pathlib import Path
from string import Template

from benchmarks.terminal.command import Options, run_command
from methods.core.errors import UserError, invalid

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).parent / "templates"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    names = [text for text in arguments if "=" not in text and not text.startswith("-")]
    options = [text for text in arguments if text not in names]
    return run_command(options, str(__doc__), {"package": ""}, partial(_run, names))


def _run(names: list[str], options: Options) -> int:
    if len(names) != 1:
        raise UserError("missing NAME: fln new-method NAME")
    directory = options["package"]
    written = write_method(names[0], Path(directory) if directory else None)
    for path in written:
        print(f"wrote {path}")
    if directory:
        print(f"next: pip install --no-deps -e {directory}; fln run method={names[0]} scale=smoke")
    else:
        print(f"next: pytest tests/methods -k {names[0]}; fln run method={names[0]} scale=smoke")
    return 0


def write_method(name: str, package_dir: Path | None) -> list[Path]:
    """Write the files of a method into the suite, or into a new package. Returns their paths."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise invalid("NAME", name, "lower-case letters, digits and underscores")
    title = name.replace("_", " ").capitalize()
    values = {"name": name, "title": title, "cls": title.title().replace(" ", "")}
    if package_dir is None:
        files = _suite_files(name)
        values["module"] = f"methods.{name}"
    else:
        package = re.sub(r"\W", "_", package_dir.resolve().name)
        files = _package_files(name, package, package_dir)
        values |= {"package": package, "distribution": package.replace("_", "-")}
        values["module"] = f"{package}.{name}"
    for path in files:
        if path.exists():
            raise UserError(f"cannot write {path}: it exists; choose another name or delete it")
    for path, template in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{template}.template").read_text() if template else '"""$title."""\n'
        path.write_text(Template(text).substitute(values))
    return list(files)


def _suite_files(name: str) -> dict[Path, str]:
    """Paths in a clone of the suite, with their templates."""
    if not (ROOT / "tests" / "methods").is_dir():
        raise UserError(f"cannot write to {ROOT}: not a clone of the suite; set package=DIR")
    return {
        ROOT / "methods" / f"{name}.py": "method.py",
        ROOT / "conf" / "method" / f"{name}.yaml": "method.yaml",
        ROOT / "tests" / "methods" / f"test_{name}.py": "test_method.py",
    }


def _package_files(name: str, package: str, directory: Path) -> dict[Path, str]:
    """Paths in a new package, with their templates."""
    return {
        directory / "pyproject.toml": "pyproject.toml",
        directory / package / "__init__.py": "",
        directory / package / f"{name}.py": "method.py",
        directory / package / "conf" / "__init__.py": "",
        directory / package / "conf" / "method" / f"{name}.yaml": "method.yaml",
        directory / "tests" / f"test_{name}.py": "test_method.py",
    }


if __name__ == "__main__":
    sys.exit(main())
