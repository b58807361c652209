"""Linux's numbers of the system calls that an untrusted program is refused, by machine (x86-64 and arm64).

`ALONE` are refused where no namespace stands between the program and the machine: what changes metadata of files (which
Landlock does not restrict), or watches folders.
"""

from __future__ import annotations

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
    "fanotify_init": 300, "memfd_create": 319, "quotactl": 179, "setpgid": 109, "setsid": 112, "sync": 162,
    "syncfs": 306,
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
    "setpgid": 154, "setsid": 157, "sync": 81, "syncfs": 267,
}
ALONE_X86_64 = {
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "getxattr": 191, "lgetxattr": 192, "fgetxattr": 193,
    "listxattr": 194, "llistxattr": 195, "flistxattr": 196, "removexattr": 197, "lremovexattr": 198,
    "fremovexattr": 199, "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "truncate": 76,
    "inotify_init": 253, "inotify_init1": 294, "inotify_add_watch": 254,
}
ALONE_ARM64 = {
    "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7,
    "getxattr": 8, "lgetxattr": 9, "fgetxattr": 10, "listxattr": 11, "llistxattr": 12, "flistxattr": 13,
    "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "utimensat": 88, "truncate": 45, "inotify_init1": 26,
    "inotify_add_watch": 27,
}
# fmt: on
ALONE_SINCE_5 = {
    "fchmodat2": 452,
    "setxattrat": 463,
    "getxattrat": 464,
    "listxattrat": 465,
    "removexattrat": 466,
    "file_setattr": 469,
}
ARGUMENT_CALLS = {  # machine: kill, tgkill, prlimit64, clone, fcntl, ioctl, prctl
    "x86_64": (62, 234, 302, 56, 72, 16, 157),
    "aarch64": (129, 131, 261, 220, 25, 29, 167),
}
ARCHES = {"x86_64": (0xC000003E, X86_64, ALONE_X86_64), "aarch64": (0xC00000B7, ARM64, ALONE_ARM64)}
CLONE3 = 435
