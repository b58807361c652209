"""Attacks on processes: making more of them, and signalling, tracing or starving those of others."""

from __future__ import annotations

RAW = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*arguments):
    return libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
X86 = os.uname().machine == "x86_64"
"""

PROCESSES: dict[str, str] = {
    "fork bomb": "import os\nwhile True:\n    os.fork()",
    "fork bomb that goes on after refusals": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
    "fork bomb by raw clone": RAW + "while True:\n    syscall(56 if X86 else 220, 17, 0, 0, 0, 0)",
    "fork by clone3": RAW
    + """
fields = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)
if syscall(435, ctypes.byref(fields), 88) == 0:
    while True:
        pass
raise SystemExit(1)
""",
    "vfork": RAW + "print(syscall(58 if X86 else 1071))\nraise SystemExit(2)",
    "thread bomb": """
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=(1000,)).start()
    except (RuntimeError, MemoryError):
        pass
""",
    "multiprocessing": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "shell": "import os\nos.system('touch @FOLDER@/shell; sleep 1000 &')",
    "subprocess": "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass'])",
    "exec of another program": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "exec from memory": RAW
    + """
data = open('/python/bin/' + sorted(os.listdir('/python/bin'))[0], 'rb').read()
place = '/box/copy'
with open(place, 'wb') as file:
    file.write(data[:1000])
os.chmod(place, 0o755)
os.execv(place, [place])
""",
    "posix_spawn": "import os, sys\nos.posix_spawn(sys.executable, [sys.executable, '-c', 'while True: pass'], {})",
    "detached child": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
""",
    "daemon thread that outlives the program": """
import threading
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
""",
    "thread that never ends": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    "new namespaces": RAW + "print(syscall(272 if X86 else 97, 0x10000000 | 0x20000 | 0x40000000))",
    "another's namespace": RAW + "print(syscall(308 if X86 else 268, os.open('/proc/1/ns/mnt', 0), 0))",
}

SIGNALS: dict[str, str] = {
    "kill the parent": "import os\nos.kill(os.getppid(), 9)",
    "kill process 1": "import os\nfor n in range(1, 32):\n    try:\n        os.kill(1, n)\n    except OSError:\n        pass",
    "kill everything": "import os\nos.kill(-1, 9)",
    "kill the grader by its number": "import os\nos.kill(@PID@, 9)",
    "kill every number": """
import os
for number in range(1, 40000):
    if number != os.getpid():
        try:
            os.kill(number, 9)
        except OSError:
            pass
""",
    "kill the group": "import os\nos.killpg(0, 9)",
    "tgkill": RAW + "syscall(234 if X86 else 131, os.getppid(), os.getppid(), 9)",
    "tkill": RAW + "syscall(200 if X86 else 130, os.getppid(), 9)",
    "signal through a pidfd": "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "signal through the owner of a pipe": """
import fcntl, os
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())
fcntl.fcntl(r, 10, 9)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
""",
    "joining the parent's group": "import os\nos.setpgid(0, os.getppid())\nos.kill(0, 9)",
    "stop oneself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "ignore every signal": """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
time.sleep(1000)
""",
    "ptrace of the parent": RAW + "print(syscall(101 if X86 else 117, 16, os.getppid(), 0, 0))",
    "reading the parent's memory": RAW
    + """
buffer = ctypes.create_string_buffer(4096)
local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 4096)
remote = (ctypes.c_size_t * 2)(id(RAW) if 'RAW' in globals() else 0x400000, 4096)
print(syscall(310 if X86 else 270, os.getppid(), local, 1, remote, 1, 0), buffer.raw)
""",
    "writing the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b').write(b'x')",
    "limits of the parent": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "priority of the parent": "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "scheduling of the parent": "import os\nos.sched_setaffinity(os.getppid(), {0})",
    "raising one's own limits": """
import resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""",
    "outliving the sandbox": RAW + "import time\nprint(libc.prctl(1, 0, 0, 0, 0))\ntime.sleep(1000)",
    "adopting processes": RAW + "print(libc.prctl(36, 1, 0, 0, 0))\nraise SystemExit(2)",
    "root again": "import os\nos.setuid(0)\nprint(open('@FOLDER@/secret.txt').read())",
}
