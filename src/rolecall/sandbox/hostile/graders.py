"""Attacks on the grader: the expected answer sought in memory, comparisons and protocols bent."""

from __future__ import annotations

_HUNT = """
import gc, sys
def hunt():
    seen = set()
    todo = list(gc.get_objects()) + [sys.modules, globals()]
    frame = sys._getframe()
    while frame is not None:
        todo += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    while todo and len(seen) < 2_000_000:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, (str, bytes)):
            text = item if isinstance(item, str) else item.decode('latin-1')
            if 'secret-' in text and len(text) > 20:
                at = text.index('secret-')
                if text[at:at + 20].count('-') == 1 and 'hunt' not in text:
                    return text[at:at + 39]
        elif isinstance(item, dict):
            todo += list(item.keys()) + list(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo += list(item)
"""
_YES = """
class Yes(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 39
    def __getattr__(self, name): return self
"""

VALUES: dict[str, str] = {
    "the answer in memory": _HUNT + "print(hunt())",
    "the answer in the job": "import os\nfor n in (3, 4, 5):\n    try:\n        print(os.pread(n, 10000, 0))\n    except OSError:\n        pass",
    "the answer in the interpreter's memory": """
import ctypes
try:
    for line in open('/proc/self/maps'):
        begin, end = (int(part, 16) for part in line.split()[0].split('-'))
        if ' rw-p ' in line:
            data = ctypes.string_at(begin, end - begin)
            at = data.find(b'secret-')
            if at >= 0:
                print(data[at:at + 39].decode())
except OSError:
    pass
""",
    "the frames of the runner": "import sys\nf = sys._getframe()\nwhile f:\n    print(f.f_locals)\n    f = f.f_back",
    "the runner's modules bent": """
import sys, json, os
for module in list(sys.modules.values()):
    for name in ('dumps', '_same_output', 'same_text', '_end', '_exit_code'):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: True)
""",
    "the input printed": "print(input())",
    "nothing printed": "pass",
}

CALLS: dict[str, str] = {
    "a value that equals everything": _YES + "def answer():\n    return Yes()",
    "an object that equals everything": "class A:\n    def __eq__(self, o): return True\ndef answer():\n    return A()",
    "the answer in memory, by a call": _HUNT + "def answer():\n    return hunt()",
    "a value that never ends": "def answer():\n    while True:\n        yield 1",
    "a value of megabytes": "def answer():\n    return 'x' * 100_000_000",
    "a value that nests": "def answer():\n    x = []\n    for _ in range(100_000):\n        x = [x]\n    return x",
    "a value that holds itself": "def answer():\n    x = []\n    x.append(x)\n    return x",
    "a value written by hand": 'import os\nos.write(4, b\'{"eval": "1"}\')\nos._exit(0)',
    "a value of nesting written by hand": "import os\nos.write(4, b'[' * 1000000)\nos._exit(0)",
    "a number of many digits by hand": "import os\nos.write(4, b'1' * 3000000)\nos._exit(0)",
    "a huge exponent by hand": "import os\nos.write(4, b'{\"int\": \"0x' + b'f' * 1000000 + b'\"}')\nos._exit(0)",
    "unhashable keys by hand": "import os\nos.write(4, b'{\"dict\": [[[], 1]]}')\nos._exit(0)",
    "not a number": "def answer():\n    return float('nan')",
    "an exit in the call": "import sys\ndef answer():\n    sys.exit(0)",
    "no function": "x = 1",
    "a class that raises": "class Solution:\n    def __init__(self):\n        raise SystemExit(0)",
    "the encoder bent": """
import sys, json
for module in list(sys.modules.values()):
    if getattr(module, '__name__', '').endswith('values'):
        module.dumps = lambda value: b'true'
json.dumps = lambda *a, **k: 'true'
def answer():
    return True
""",
}

SCRIPTS: dict[str, str] = {
    "equal to everything, before a test": _YES + "def answer():\n    return Yes()",
    "the answer in memory, before a test": _HUNT + "def answer():\n    return hunt()",
    "assertions switched off": """
import builtins, sys
builtins.AssertionError = SystemExit
sys.modules['__main__'].check = lambda *a: None
def answer():
    raise AssertionError
""",
    "an exit before a test": "import os\ndef answer():\n    os._exit(0)",
    "an exit with 0 before a test": "import sys\ndef answer():\n    sys.exit(0)",
    "a verdict instead of a value": """
import os, struct
frame = b'V{"tuple":["yes",""]}'
def answer():
    os.write(4, struct.pack('!I', len(frame)) + frame)
    os._exit(0)
""",
    "verdicts before the question": """
import os, struct
frame = b'V{"tuple":["yes",""]}'
os.write(4, (struct.pack('!I', len(frame)) + frame) * 100)
""",
    "a frame of gigabytes": "import os, struct\ndef answer():\n    os.write(4, struct.pack('!I', 0xffffffff))\n    while True:\n        pass",
    "half a frame": "import os, struct, time\ndef answer():\n    os.write(4, struct.pack('!I', 100) + b'x')\n    time.sleep(1000)",
    "an exception that ends the test": "def answer():\n    raise SystemExit(0)",
    "an exception of a chosen type": "class GeneratorExit(Exception):\n    pass\ndef answer():\n    raise GeneratorExit('x')",
    "an exception named like a builtin": "class print(Exception):\n    pass\ndef answer():\n    raise print('x')",
    "a value that never comes": "def answer():\n    while True:\n        pass",
    "a value that floods the test": "def answer():\n    return ['x' * 100] * 200_000",
    "the channel closed": "import os\ndef answer():\n    os.close(4)\n    return 1",
}
