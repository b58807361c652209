"""Attacks on memory, disk, output and time, and endings that are no ordinary end."""

from __future__ import annotations

MEMORY: dict[str, str] = {
    "one huge allocation": "x = bytearray(64 << 30)",
    "memory bit by bit": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))",
    "memory after refusals": """
x = []
size = 1 << 30
while True:
    try:
        x.append(bytearray(size))
    except MemoryError:
        size = max(size // 2, 1)
""",
    "mapped memory": "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 26)\n    m.write(b'x' * (1 << 26))\n    x.append(m)",
    "memory files": "import os\nx = [os.memfd_create(str(n)) for n in range(1000)]\nfor d in x:\n    os.truncate(d, 1 << 40)",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n):\n    return [f(n + 1)]\nf(0)",
    "recursion in C": "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6):\n    x = [x]\nprint(repr(x)[:1])",
    "source that nests too deep": "x = " + "(" * 5000 + ")" * 5000,
    "source that is long": "x = [" + "1," * 200_000 + "]\n" + "y = 1\n" * 20_000 + "while True:\n    pass",
    "huge number": "x = 9 ** 9 ** 9",
    "backtracking": "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
    "full disk": "n = 0\nwhile True:\n    open(str(n), 'wb').write(b'x' * (1 << 20))\n    n += 1",
    "many files": "n = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1",
    "deep folders": "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    "many descriptors": "x = []\nwhile True:\n    x.append(open('/dev/null'))",
    "pipes full of data": "import os\nwhile True:\n    r, w = os.pipe()\n    os.set_blocking(w, False)\n    os.write(w, b'x' * (1 << 16))",
}

OUTPUT: dict[str, str] = {
    "endless output": "while True:\n    print('x' * 1000)",
    "endless output that ignores errors": """
import os
while True:
    try:
        os.write(1, b'x' * 100000)
    except OSError:
        pass
""",
    "endless messages": "import sys\nwhile True:\n    sys.stderr.write('x' * 1000)",
    "output as a sparse file": "import os\nos.ftruncate(1, 1 << 40)",
    "output at a far place": "import os\nos.pwrite(1, b'x', 1 << 40)",
    "bytes that are no text": "import os\nos.write(1, bytes(range(256)) * 100)",
    "control characters": "print('\\x1b[2J\\x1b]0;title\\x07' * 1000)",
    "one line of megabytes": "print('x' * 3_000_000)",
    "surrogates": "print('\\ud800' * 1000)",
}

TIME: dict[str, str] = {
    "endless loop": "while True:\n    pass",
    "sleep": "import time\ntime.sleep(1000)",
    "waiting for input": "import sys\nwhile True:\n    sys.stdin.read()\n    sys.stdin.seek(0)",
    "deadlock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "endless loop that survives exceptions": """
import signal
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
    "handler of every signal": """
import os, signal
def again(*_):
    os.write(2, b'.')
for number in range(1, 65):
    try:
        signal.signal(number, again)
    except (OSError, ValueError):
        pass
while True:
    pass
""",
    "alarms": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)\nsignal.signal(signal.SIGALRM, lambda *_: None)\nwhile True:\n    pass",
    "the clock set": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
}

ENDINGS: dict[str, str] = {
    "exit with 0": "import sys\nsys.exit(0)",
    "exit with a text": "import sys\nsys.exit('right')",
    "hard exit with 0": "import os\nos._exit(0)",
    "exit with many codes": "import os\nos._exit(os.getpid() % 255 + 1)",
    "segmentation fault": "import ctypes\nctypes.string_at(0)",
    "abort": "import os\nos.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "an exception that raises": "class E(BaseException):\n    def __str__(self):\n        raise self\n    __repr__ = __str__\nraise E",
    "exit handlers": "import atexit, os\natexit.register(lambda: os._exit(0))\natexit.register(lambda: 1 / 0)",
    "every descriptor closed": "import os\nos.closerange(0, 1024)",
    "descriptors swapped": "import os\nos.dup2(0, 1)\nos.dup2(1, 2)\nprint('x')",
    "no source": "",
    "source with a zero byte": "print(1)\0",
    "source that is no Python": "def f(:",
}
