"""The first process in a sandbox: it forks one child for each program, waits for it, and cleans up after it.

`python -m rolecall.sandbox.inside.zygote CONTROL UID FOLDER ABI LABEL`. CONTROL is a socket (SOCK_SEQPACKET) to the
host; UID is the user to become (-1: stay); FOLDER the only one that a program can write to. ABI says what stands around
this process: `namespaces`, `none`, or the number of the Landlock ABI under which it puts itself. The child cannot
signal, trace or read this process (`seccomp.py`; its memory is not dumpable), and cannot fork, so that its end is the
end of the program. Without namespaces it ends with this process, and this process with the host.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from rolecall.sandbox.inside import child, landlock, seccomp
from rolecall.sandbox.inside.folder import Folder

COMMON = (
    "bisect collections collections.abc copy dataclasses datetime decimal enum fractions functools heapq io itertools "
    "json math operator random re statistics string sys threading time typing"
)
NOTHING = -1
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
LOOK_S = 0.05  # how often the size of the folder is looked at where no file system bounds it
STARVED = 0.1  # a program that gets this share of a CPU works: on a busy machine its CPU time decides, not the clock
LATE_S = 0.2  # how often the host is told that one gets less: it knows whether the program waits for a CPU or sleeps


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    folder, around = Folder(sys.argv[3]), sys.argv[4]
    alone = around != "namespaces"
    settle(int(sys.argv[2]), folder.path, around)
    gc.collect()
    gc.freeze()
    control.send(b'{"ready":true}')
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 4096, 8)
        if not message:
            return
        header = json.loads(message)
        if "abort" not in header:
            report = _run(control, header, descriptors, folder if alone else None)
            report["clean"] = folder.clean()
            control.send(json.dumps(report).encode())


def settle(uid: int, folder: str, around: str) -> None:
    """Put this process where its children are to run programs: another user, the folder, Landlock; `OSError` when the
    kernel refuses."""
    alone = around != "namespaces"
    if uid != NOTHING:
        if alone:
            os.chown(folder, uid, uid)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    seccomp.prctl(seccomp.PR_SET_DUMPABLE, 0)
    seccomp.prctl(seccomp.PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(folder)
    os.umask(0o077)
    for name in COMMON.split():
        __import__(name)
    sys.path[:] = [entry for entry in sys.path if entry != os.environ.get("PYTHONPATH")]
    sys.path += [os.environ[name] for name in ("ROLECALL_PACKAGES",) if name in os.environ]
    for name in ("PYTHONPATH", "PYTHONHOME", "ROLECALL_PACKAGES"):
        os.environ.pop(name, None)
    if around.isdigit():
        landlock.restrict(int(around), _rules(folder))
    if alone:
        seccomp.prctl(seccomp.PR_SET_PDEATHSIG, signal.SIGKILL)


def _rules(folder: str) -> list[tuple[str, int]]:
    """What may be reached under Landlock: the libraries, this interpreter's own folder, three devices, the folder."""
    places = [*LIBRARIES, sys.prefix, *(entry for entry in sys.path if entry)]
    found = [(path, landlock.READ) for path in places if os.path.isdir(path)]
    found += [(path, landlock.DEVICE) for path in DEVICES]
    return [*found, (folder, landlock.FOLDER)]


def _run(
    control: socket.socket, header: dict[str, Any], descriptors: list[int], alone: Folder | None
) -> dict[str, Any]:
    """Run one program; `alone` is its folder where no namespaces bound and end it."""
    started = time.monotonic()
    told, tell = os.pipe()
    zygote, pid = os.getpid(), os.fork()
    if pid == 0:
        control.detach()
        if alone is not None:
            seccomp.prctl(seccomp.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != zygote:
                os._exit(child.EXIT_RAISED)  # it ended before the line above
        tell = _become(descriptors, tell, new_group=alone is None)
        child.run(header["limits"], tell, alone is not None)
    os.close(tell)
    for descriptor in descriptors:
        os.close(descriptor)
    killed = _wait(control, header, pid, started, alone)
    _, status, usage = os.wait4(pid, 0)
    set_up = os.read(told, 1) == child.SET_UP  # before the program ran: nothing that it does can take this back
    os.close(told)
    code = os.waitstatus_to_exitcode(status)
    return {
        "set_up": set_up,
        "job": header["job"],
        "code": code,
        "killed": killed if code == -signal.SIGKILL else "",  # it may have ended just before
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": time.monotonic() - started,
        "peak_kib": usage.ru_maxrss,
    }


def _become(descriptors: list[int], tell: int, new_group: bool) -> int:
    """In the child: the job's descriptors from 0 on, and no others but `tell`, whose new number is returned."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64) for descriptor in (*descriptors, tell)]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(len(high), 256)
    if new_group:
        os.setpgid(0, 0)
    return len(descriptors)


def _wait(control: socket.socket, header: dict[str, Any], pid: int, started: float, alone: Folder | None) -> str:
    """Wait for the child, at most for its limits; says why it was killed, or nothing."""
    cpu_limit, wall_limit = header["limits"]["cpu_s"], header["limits"]["wall_s"]
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(control.fileno(), select.POLLIN)
    reason = ""
    wait_s = cpu_limit
    while True:
        left = min(wait_s, max(0.05, wall_limit - (time.monotonic() - started)))
        left = left if alone is None else min(left, LOOK_S)
        events = dict(poll.poll(max(0.0, left) * 1000))
        if handle in events:
            break
        if control.fileno() in events:
            message = control.recv(4096)
            if not message:
                os.kill(pid, signal.SIGKILL)
                os._exit(0)  # the host is gone
            said = json.loads(message)
            if said.get("abort") == header["job"]:
                reason = said["why"]
        else:
            used, elapsed = _cpu_s(pid), time.monotonic() - started
            wait_s = max(0.01, cpu_limit - used)
            if used >= cpu_limit:
                reason = "cpu"
            elif elapsed >= wall_limit and used < STARVED * elapsed:
                wait_s = LATE_S
                control.send(json.dumps({"late": header["job"]}).encode())
            elif alone is not None and alone.full():
                reason = "disk"
        if reason:
            os.kill(pid, signal.SIGKILL)
            break
    os.close(handle)
    return reason


def _cpu_s(pid: int) -> float:
    """What the process has used so far; 0 when it has just ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the clock of another process: clock_getcpuclockid(3)
    except OSError:
        return 0.0


if __name__ == "__main__":
    main()
