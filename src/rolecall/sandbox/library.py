"""Folders that sandboxes without a file system of their own need: a standard library apart from the user's, and one
folder for each sandbox. They go with this process; what a killed process left is removed by the next.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from rolecall.files import hold
from rolecall.sandbox.inside.folder import empty

INSIDE = Path(__file__).parent / "inside"
PACKAGES = ("numpy",)  # beside the standard library, where installed: tests such as those of HumanEval+ use it
PREFIX = "rolecall-sandbox-"
SETTLED_S = 60.0
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "idlelib", "turtledemo", "ensurepip", "tkinter"})
_LOCK = "lock"


def package_folders() -> list[Path]:
    """The folders of `PACKAGES` that are installed, with those of the libraries that their wheels bring."""
    found: list[Path] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).resolve().parent
            found += [path for path in (folder, folder.with_name(f"{folder.name}.libs")) if path.is_dir()]
    return found


@functools.cache
def library() -> Path:
    """A folder with the standard library (`lib/pythonX.Y`), our own code (`inside`) and `packages`, which other users
    may read: links where the file system has them, else copies. `OSError` when it cannot be made."""
    folder = locked_folder()
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    _copy(stdlib, folder / "lib" / stdlib.name)
    _copy(INSIDE, folder / "inside/rolecall/sandbox/inside")
    for package in package_folders():
        _copy(package, folder / "packages" / package.name)
    for path in (folder, *(Path(place) for place, _, _ in os.walk(folder))):
        path.chmod(0o755)
    return folder


def locked_folder() -> Path:
    """A new temporary folder that is removed when this process ends, or later when it was killed."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    hold(handle)  # until this process ends, however it does; on a file system without locks nobody sweeps it
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def remove(folder: Path) -> None:
    """Remove a folder that programs wrote to, whatever they left in it; what cannot be removed stays for the sweep."""
    with suppress(OSError):
        empty(str(folder))
        folder.rmdir()


_homes: list[Path] = []
_making = threading.Lock()


def new_home() -> Path:
    """A folder for one sandbox, with an empty `box` in it that other users may reach; `remove` it in the end."""
    with _making:
        if not _homes or not _homes[0].is_dir():
            _homes[:] = [locked_folder()]
            _homes[0].chmod(0o711)
    home = Path(tempfile.mkdtemp(dir=_homes[0]))
    home.chmod(0o711)
    (home / "box").mkdir(mode=0o700)
    return home


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        remove(folder)


def _sweep() -> None:
    """Remove the folders of processes that are gone: their locks are free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = folder.lstat()
            if about.st_uid != os.geteuid() or time.time() - about.st_mtime < SETTLED_S:
                continue
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if hold(handle):
                    remove(folder)
            finally:
                os.close(handle)


def _copy(source: Path, target: Path) -> None:
    def left_out(place: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "tests" or (place == str(source) and name in _LEFT_OUT)]

    shutil.copytree(source, target, ignore=left_out, copy_function=_link, ignore_dangling_symlinks=True)


def _link(source: str, target: str) -> None:
    """A link where another user can read the file by it, else a copy that it can read."""
    if os.stat(source).st_mode & 0o004 and not os.path.islink(source):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    os.chmod(target, 0o644 | os.stat(source).st_mode & 0o111)


def interpreter() -> str:
    """The interpreter outside of any virtual environment."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
