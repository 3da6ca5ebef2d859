"""Shared libraries of C++ files: compiled once per machine, in a few seconds."""

import ctypes
import errno
import hashlib
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from methods.core.errors import UserError

FLAGS = ["-std=c++17", "-O3", "-shared", "-fPIC"]
COMPILER_SECONDS = 120  # time limit


def cache_dir() -> Path:
    default = Path.home() / ".cache" / "fln-compiled"
    return Path(os.environ.get("FLN_COMPILED") or default).expanduser()


@cache
def load_library(source: Path, *options: str) -> ctypes.CDLL:
    """Compile a file, or load it from the cache. Raises UserError without a compiler."""
    try:
        return _build(source, "-march=native", *options)
    except UserError as error:
        try:
            return _build(source, *options)  # some compilers do not know -march=native
        except UserError:
            raise error from None


def _build(source: Path, *options: str) -> ctypes.CDLL:
    # The macros identify the compiler and the native CPU, as machines can share a cache directory.
    macros = _run_compiler(*options, "-dM", "-E", "-x", "c++", os.devnull)
    content = source.read_bytes() + macros + " ".join(options).encode()
    directory = cache_dir()
    target = directory / f"{source.stem}-{hashlib.sha256(content).hexdigest()[:16]}.so"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(directory)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=directory) as temporary:
                library = Path(temporary, target.name)
                _run_compiler(*options, str(source), "-o", str(library))
                library.replace(target)
        _check_owner(target)
        return ctypes.CDLL(str(target))
    except OSError as error:
        reason = f"{directory} is not usable ({error.strerror or error})"
        raise UserError(f"{reason}; set FLN_COMPILED=DIR") from error


def _check_owner(path: Path) -> None:
    """Code is loaded only from files that no other user can write."""
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"{path.name} must be writable only by its owner")


def _run_compiler(*arguments: str) -> bytes:
    """Run the C++ compiler and return its standard output."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    try:
        result = subprocess.run(
            [*command, *FLAGS, *arguments],
            capture_output=True,
            check=True,
            timeout=COMPILER_SECONDS,
        )
    except FileNotFoundError:
        raise UserError(f"C++ compiler {command[0]} not found") from None
    except OSError as error:
        raise UserError(f"cannot run {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} took more than {COMPILER_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines()
        reason = next((line for line in lines if "error" in line), f"exit code {error.returncode}")
        raise UserError(f"{command[0]} failed ({reason})") from None
    return result.stdout
