"""Build the second device and load it into this process.

This module imports torch in functions only, as torch calls `load` while it is imported.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "fln"
HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("second_device*.cpp"))
HEADERS = sorted(HERE.glob("second_device*.h"))
CACHE = Path.home() / ".cache" / "fln-second-device"
# Processes with this directory on their path load the device when they import torch.
AUTOLOAD = HERE / "autoload"
FLAGS = ["-O1", "-g0"]
BUILD_SECONDS = 600


def is_loaded() -> bool:
    """True if this process has the device."""
    import torch

    return NAME in vars(torch)


def load() -> None:
    """Make the device available to this process."""
    import second_device
    import torch

    if is_loaded():
        return
    torch.ops.load_library(build())
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, second_device)
    torch.utils.generate_methods_for_privateuse1_backend()


def missing_tool() -> str | None:
    """Name of the tool without which the device cannot be built."""
    return next((tool for tool in (compiler()[0], "ninja") if not shutil.which(tool)), None)


def compiler() -> list[str]:
    """Command of the C++ compiler that torch.utils.cpp_extension uses."""
    return shlex.split(os.environ.get("CXX", "c++"))


def build() -> Path:
    """Compile the device, or find it in the cache."""
    import torch

    version = subprocess.run([*compiler(), "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + f"{torch.__version__} {FLAGS}".encode())
    for source in SOURCES + HEADERS:
        digest.update(source.read_bytes())
    _make_private(CACHE)
    target = CACHE / f"second_device-{digest.hexdigest()[:16]}.so"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                _compile(directory)
                (library,) = Path(directory).glob("*.so")
                library.replace(target)
    return target


def _make_private(directory: Path) -> None:
    """Create a directory that only this user can write to, as a shared object is loaded from it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{directory} belongs to another user or others can write to it")


def _compile(directory: str) -> None:
    """Compile in a process of its own, as cpp_extension also loads the result."""
    command = ["nice", sys.executable, __file__, directory]
    environment = os.environ | {"MAX_JOBS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the second device does not compile:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    from torch.utils import cpp_extension

    cpp_extension.load(
        "second_device",
        [str(source) for source in SOURCES],
        extra_cflags=FLAGS,
        build_directory=sys.argv[1],
        is_python_module=False,
        verbose=True,
    )
