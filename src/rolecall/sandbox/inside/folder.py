"""The one folder that programs write to: emptied after each, and bounded where no file system of its own bounds it."""

from __future__ import annotations

import os
import stat

MAX_BYTES = 32 << 20
MAX_FILES = 2000  # beyond them it counts as full
MAX_LEFT_FILES = 100  # beyond them it is not worth emptying


class Folder:
    """A folder by its path."""

    def __init__(self, path: str) -> None:
        self.path = path

    def full(self) -> bool:
        """Whether there is more in it than a program may leave on a disk, now: more bytes, more files, or folders that
        nest too deep to be looked at."""
        todo, size, count = [self.path], 0, 0
        while todo:
            try:
                with os.scandir(todo.pop()) as entries:
                    for entry in entries:
                        count += 1
                        about = entry.stat(follow_symlinks=False)
                        size += about.st_blocks * 512
                        if size > MAX_BYTES or count > MAX_FILES:
                            return True
                        if stat.S_ISDIR(about.st_mode):
                            todo.append(entry.path)
            except FileNotFoundError:
                continue  # it was removed meanwhile
            except OSError:
                return True  # a path too long, or closed to us: nothing that an honest program makes
        return False

    def clean(self) -> bool:
        """Remove what a program left; False when something stays: the folder is then not to be used again."""
        try:
            return len(os.listdir(self.path)) <= MAX_LEFT_FILES and empty(self.path, MAX_FILES)
        except OSError:
            return False


def empty(folder: str, most: int = 1 << 62) -> bool:
    """Remove all that is in `folder`, at most `most` files, however deep it nests; False when something is left.

    Deep folders are moved up before they are entered, so that no path grows long and nothing recurses.
    """
    count = 0
    while names := os.listdir(folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
                count += 1
            else:
                count += _flatten(folder, path)
            if count > most:
                return False
    return True


def _flatten(folder: str, path: str) -> int:
    """Remove the folder `path` in `folder`: its files go, its folders move up into `folder`; how many there were."""
    os.chmod(path, 0o700)
    number = 0
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        number += 1
        if os.path.islink(inner) or not os.path.isdir(inner):
            os.unlink(inner)
        else:
            os.chmod(inner, 0o700)  # moving a folder writes to it
            os.rename(inner, os.path.join(folder, f"up-{os.urandom(16).hex()}"))
    os.rmdir(path)
    return number + 1
