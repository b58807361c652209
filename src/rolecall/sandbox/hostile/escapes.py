"""Attacks on the network and on files outside."""

from __future__ import annotations

from rolecall.sandbox.hostile.processes import RAW

_SEARCH = """
import os
def look(top):
    for place, folders, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(place, name), errors='replace') as file:
                    text = file.read(10000)
            except OSError:
                continue
            if 'secret-' in text:
                print(text)
"""

NETWORK: dict[str, str] = {
    "TCP to loopback": "import socket\nsocket.create_connection(('127.0.0.1', @PORT@)).send(b'hello')",
    "UDP to loopback": "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', @PORT@))",
    "HTTP": "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:@PORT@/').read())",
    "raw socket call": RAW
    + """
import struct
number = syscall(41 if X86 else 198, 2, 1, 0)
address = ctypes.create_string_buffer(struct.pack('=H', 2) + struct.pack('!H', @PORT@) + bytes([127, 0, 0, 1]) + bytes(8))
print(number, syscall(42 if X86 else 203, number, address, 16))
""",
    "names": "import socket\nprint(socket.getaddrinfo('example.org', 80))",
    "listening": "import socket\ns = socket.socket()\ns.bind(('0.0.0.0', 0))\ns.listen()\ns.accept()",
    "abstract socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0@TOKEN@')\ns.send(b'hello')",
    "socket file": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('@FOLDER@/socket')\ns.send(b'hello')",
    "inherited descriptors": """
import os, socket
for number in [n for n in range(3, 1024)]:
    for act in (lambda: os.write(number, b'{"ready":true}'), lambda: os.read(number, 10)):
        try:
            os.set_blocking(number, False)
            act()
        except OSError:
            pass
""",
    "a command for the grader on every descriptor": """
import os
for number in range(3, 1024):
    for text in (b'V{"tuple":["yes",""]}', b'\\0\\0\\0\\x16V{"tuple":["yes",""]}', b'{"job":1,"code":0,"killed":""}'):
        try:
            os.write(number, text)
        except OSError:
            pass
""",
    "io_uring": RAW + "print(syscall(425, 8, ctypes.create_string_buffer(120)))\nraise SystemExit(3)",
    "netlink": "import socket\nsocket.socket(16, 3, 0).bind((0, 0))",
}

FILES: dict[str, str] = {
    "the secret by its path": "print(open('@FOLDER@/secret.txt').read())",
    "the home folder": _SEARCH + "look('@HOME@')\nlook('/home')\nlook('/root')",
    "every file": _SEARCH + "look('/')",
    "passwords": "print(open('/etc/passwd').read())\nprint(open('/etc/shadow').read())",
    "proc": "import os\nfor n in os.listdir('/proc'):\n    print(open(f'/proc/{n}/environ').read())",
    "the root of another process": "print(open('/proc/1/root@FOLDER@/secret.txt').read())",
    "sys": "import os\nprint(os.listdir('/sys'))\nopen('/sys/fs/cgroup/memory/x', 'w').write('1')",
    "devices": "import os\nprint(os.listdir('/dev'))\nprint(open('/dev/mem', 'rb').read(10), open('/dev/vda', 'rb').read(10))",
    "making a device": "import os, stat\nos.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))\nprint(open('disk', 'rb').read(10))",
    "symbolic link out": "import os\nos.symlink('@FOLDER@/secret.txt', 'link')\nprint(open('link').read())",
    "symbolic link left for the cleaner": "import os\nos.symlink('@FOLDER@', 'link')\nos.symlink('/', 'root')",
    "hard link out": "import os\nos.link('@FOLDER@/secret.txt', 'link')\nprint(open('link').read())",
    "dots": "print(open('../' * 30 + '@FOLDER@/secret.txt').read())",
    "writing outside": """
import os
done = 0
for folder in ('@FOLDER@', '@HOME@', '/', '/tmp', '/var/tmp', '/dev/shm', '/dev', '/usr/lib', '/etc', '/python', '/inside'):
    try:
        with open(os.path.join(folder, '@TOKEN@'), 'w') as file:
            file.write('x')
    except OSError:
        pass
open('@FOLDER@/kept.txt', 'a').write('changed')
""",
    "deleting outside": "import os, shutil\nshutil.rmtree('@FOLDER@', ignore_errors=True)\nos.remove('@FOLDER@/kept.txt')",
    "poisoning the standard library": "import os\nopen(os.__file__, 'a').write('print(1)')",
    "poisoning the sandbox's own code": "open('/inside/rolecall/sandbox/inside/child.py', 'a').write('print(1)')",
    "poisoning by a module in the folder": "open('json.py', 'w').write('print(1)')\nopen('/box/sitecustomize.py', 'w').write('x')",
    "mounting": RAW + "print(syscall(165 if X86 else 40, b'/python', b'/box', b'none', 4096, 0))\nraise SystemExit(2)",
    "remounting": RAW + "print(syscall(165 if X86 else 40, b'none', b'/', b'none', 32, 0))\nopen('/x', 'w').write('x')",
    "chroot": "import os\nos.mkdir('a')\nos.chroot('a')\nos.chdir('../' * 20)\nprint(open('@FOLDER@/secret.txt').read())",
    "open by handle": RAW
    + """
handle = ctypes.create_string_buffer(b'\\x08\\0\\0\\0\\x01\\0\\0\\0\\x02\\0\\0\\0\\0\\0\\0\\0')
print(syscall(304 if X86 else 265, os.open('/usr/lib', 0), handle, 0))
raise SystemExit(2)
""",
    "set-user-id": "import os\nopen('x', 'w').write('#!/bin/sh')\nos.chmod('x', 0o6777)\nos.execv('/box/x', ['x'])",
    "keyring": RAW + "print(syscall(250 if X86 else 219, 0, -3, 0))\nraise SystemExit(2)",
    "shared memory": RAW + "print(syscall(29 if X86 else 194, 7777, 4096, 0o1666))\nraise SystemExit(2)",
    "bpf": RAW + "print(syscall(321 if X86 else 280, 0, 0, 0))\nraise SystemExit(2)",
    "kernel log and machine": RAW
    + "print(os.uname(), syscall(103 if X86 else 116, 3, ctypes.create_string_buffer(99), 99))",
    "environment": "import os\nprint(os.environ)\nprint(os.environ['SECRET'])",
    "changing what others may do with a file": "import os\nos.chmod('@FOLDER@/kept.txt', 0)",
    "changing a time": "import os\nos.utime('@FOLDER@/kept.txt', (0, 0))",
    "an attribute": "import os\nos.setxattr('@FOLDER@/kept.txt', 'user.note', b'x')",
    "emptying by a path": "import os\nos.truncate('@FOLDER@/kept.txt', 0)",
    "emptying by reading": "import os\nos.open('@FOLDER@/kept.txt', os.O_RDONLY | os.O_TRUNC)",
    "emptying the standard library by reading": "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    "rights of the standard library": "import os\nos.chmod(os.__file__, 0)\nos.fchmod(os.open(os.__file__, 0), 0)",
    "moving a file out": "import os\nopen('x', 'w').write('x')\nos.rename('x', '@FOLDER@/@TOKEN@')",
    "moving a file in": "import os\nos.rename('@FOLDER@/secret.txt', 'x')\nprint(open('x').read())",
    "exchanging files": RAW
    + """
open('x', 'w').write('x')
print(syscall(316 if X86 else 276, -100, b'x', -100, b'@FOLDER@/kept.txt', 2))
raise SystemExit(2)
""",
    "a folder made open": "import os\nprint(os.listdir(os.open('@FOLDER@', os.O_PATH)))",
    "working in another folder": "import os\nos.chdir('@FOLDER@')\nprint(open('secret.txt').read())",
    "watching a folder": RAW
    + """
number = syscall(294 if X86 else 26, 0)
print(number, syscall(254 if X86 else 27, number, b'@FOLDER@', 0xFFF))
raise SystemExit(2)
""",
    "the grader's open files": "import os\nfor n in range(99):\n    print(open(f'/proc/@PID@/fd/{n}').read())",
    "where the grader works": "import os\nprint(os.readlink('/proc/@PID@/cwd'))\nraise SystemExit(2)",
    "a lease on the standard library": "import fcntl, os\nfcntl.fcntl(os.open(os.__file__, 0), 1024, 0)",
    "all disks written out": "import os\nfor _ in range(3):\n    os.sync()\nraise SystemExit(2)",
    "files deleted and held": """
import os
held = []
while True:
    held.append(open('x', 'wb'))
    held[-1].write(b'x' * (1 << 20))
    os.remove('x')
""",
    "a folder closed to its owner, left": "import os\nos.makedirs('d/e')\nopen('d/e/f', 'w').write('x')\nos.mkdir('d/g', 0)",
    "a file left for the next program": "open('@TOKEN@', 'w').write('x')\nopen('/tmp/left', 'w').write('x')",
    "a file that cannot be read, left": "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x')\nos.chmod('d', 0)",
}
