"""The filter of system calls of an untrusted program: one process, no exec, no network, no signals to others.

A refused call fails with EPERM, which Python raises as `PermissionError`. Numbers: Linux's tables of x86-64 and of
arm64. The filter is classic BPF (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
CLONE_THREAD = 0x10000
X32 = 0x40000000
LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

SINCE_5 = {  # the same number on every machine
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "process_mrelease": 448,
}
# fmt: off
X86_64 = {
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "ptrace": 101, "tkill": 200, "rt_sigqueueinfo": 129,
    "rt_tgsigqueueinfo": 297, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "unshare": 272,
    "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "keyctl": 250, "add_key": 248,
    "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "init_module": 175, "delete_module": 176, "finit_module": 313, "kexec_load": 246,
    "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "settimeofday": 164,
    "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "sethostname": 170, "setdomainname": 171,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "personality": 135, "syslog": 103, "setpriority": 141,
    "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314,
    "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279, "shmget": 29, "shmat": 30, "shmctl": 31,
    "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240,
    "mq_unlink": 241, "socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50, "accept4": 288,
    "fanotify_init": 300, "memfd_create": 319, "quotactl": 179, "setpgid": 109, "setsid": 112,
}
ARM64 = {
    "execve": 221, "execveat": 281, "ptrace": 117, "tkill": 130, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "unshare": 97, "setns": 268, "mount": 40,
    "umount2": 39, "pivot_root": 41, "chroot": 51, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280,
    "perf_event_open": 241, "userfaultfd": 282, "name_to_handle_at": 264, "open_by_handle_at": 265,
    "init_module": 105, "delete_module": 106, "finit_module": 273, "kexec_load": 104, "kexec_file_load": 294,
    "reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89, "settimeofday": 170, "clock_settime": 112,
    "adjtimex": 171, "clock_adjtime": 266, "sethostname": 161, "setdomainname": 162, "personality": 92,
    "syslog": 116, "setpriority": 140, "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setparam": 118,
    "sched_setattr": 274, "ioprio_set": 30, "migrate_pages": 238, "move_pages": 239, "shmget": 194, "shmctl": 195,
    "shmat": 196, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193, "msgget": 186, "msgctl": 187,
    "msgrcv": 188, "msgsnd": 189, "mq_open": 180, "mq_unlink": 181, "socket": 198, "bind": 200, "listen": 201,
    "accept": 202, "connect": 203, "accept4": 242, "fanotify_init": 262, "memfd_create": 279, "quotactl": 60,
    "setpgid": 154, "setsid": 157,
}
# fmt: on
ARGUMENT_CALLS = {  # machine: kill, tgkill, prlimit64, clone, fcntl, ioctl
    "x86_64": (62, 234, 302, 56, 72, 16),
    "aarch64": (129, 131, 261, 220, 25, 29),
}
ARCHES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, ARM64)}
CLONE3 = 435
OWNER_FCNTL, OWNER_IOCTL = (8, 15), (0x8901, 0x8902)  # F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP: signals by kernel


def supported() -> bool:
    return platform.machine() in ARCHES


def program_filter(pid: int) -> bytes:
    """The filter of a program that runs as process `pid`, which it may signal; `KeyError` on another machine."""
    machine = platform.machine()
    arch, calls = ARCHES[machine]
    kill, tgkill, prlimit, clone, fcntl, ioctl = ARGUMENT_CALLS[machine]
    out = [_op(LOAD, ARCH), _op(JUMP_EQUAL, arch, 1, 0), _op(RETURN, KILL), _op(LOAD, NR)]
    if machine == "x86_64":
        out += [_op(JUMP_ABOVE, X32, 0, 1), _op(RETURN, REFUSE | EPERM)]
    for number in sorted({*calls.values(), *SINCE_5.values()}):
        out += [_op(JUMP_EQUAL, number, 0, 1), _op(RETURN, REFUSE | EPERM)]
    out += [
        _op(JUMP_EQUAL, CLONE3, 0, 1),
        _op(RETURN, REFUSE | ENOSYS),
    ]  # its flags are in memory: libc then uses clone
    out += _only(kill, 0, [pid]) + _only(tgkill, 0, [pid]) + _only(prlimit, 0, [0, pid])
    out += [_op(JUMP_EQUAL, clone, 0, 4), _op(LOAD, ARGUMENTS), _op(JUMP_SET, CLONE_THREAD, 0, 1)]
    out += [_op(RETURN, ALLOW), _op(RETURN, REFUSE | EPERM)]
    for number, refused in ((fcntl, OWNER_FCNTL), (ioctl, OWNER_IOCTL)):
        out += [_op(JUMP_EQUAL, number, 0, 5), _op(LOAD, ARGUMENTS + 8)]
        out += [_op(JUMP_EQUAL, refused[0], 1, 0), _op(JUMP_EQUAL, refused[1], 0, 1)]
        out += [_op(RETURN, REFUSE | EPERM), _op(RETURN, ALLOW)]
    return b"".join([*out, _op(RETURN, ALLOW)])


def _only(number: int, argument: int, allowed: list[int]) -> list[bytes]:
    """Refuse call `number` unless its argument is one of `allowed`."""
    tests = [_op(JUMP_EQUAL, value, len(allowed) - index, 0) for index, value in enumerate(allowed)]
    body = [_op(LOAD, ARGUMENTS + 8 * argument), *tests, _op(RETURN, REFUSE | EPERM), _op(RETURN, ALLOW)]
    return [_op(JUMP_EQUAL, number, 0, len(body)), *body]


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int | ctypes.c_void_p) -> None:
    """`OSError` when the kernel refuses."""
    if _LIBC.prctl(option, *arguments, *[0] * (4 - len(arguments))) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def confine() -> None:
    """From here on this process is under `program_filter`, with no way back."""
    rules = program_filter(os.getpid())
    buffer = ctypes.create_string_buffer(rules, len(rules))
    program = _Program(len(rules) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.cast(ctypes.pointer(program), ctypes.c_void_p))
