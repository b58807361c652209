"""A file that one process holds: others see it, and a file system without locks is told apart from both."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.files import hold


def test_a_file_is_held_until_it_is_closed_and_another_process_sees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = f"from rolecall.files import hold; print(hold(open({str(path)!r}, 'a+')))"
    with path.open("a+") as file:
        assert hold(file) is True
        held = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (held.stdout.strip(), free.stdout.strip()) == ("False", "True")


def test_a_file_system_without_locks_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "lock").open("a+") as file:
        assert hold(file) is None
