"""What can be seen from outside while untrusted programs run: a listener that nobody is to reach, files that must not
change, the table of processes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rolecall.sandbox.library import INSIDE
from rolecall.sandbox.protection import find_bwraps

WRITTEN = ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/usr/lib", "/etc")  # where an attack leaves a file, if it can


class Witness:
    """A folder with a secret, listeners on loopback, and what they looked like before."""

    def __init__(self) -> None:
        self.token = f"rolecall-check-{secrets.token_hex(8)}"
        self.secret = f"secret-{secrets.token_hex(16)}"
        self.reached: list[str] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Witness:
        self._folder = tempfile.TemporaryDirectory(prefix="rolecall-witness-")
        self.folder = Path(self._folder.name)
        self.folder.chmod(0o777)  # as open as a folder can be: what keeps a program out is the sandbox
        (self.folder / "secret.txt").write_text(self.secret)
        (self.folder / "kept.txt").write_text("kept")
        for path in self.folder.iterdir():
            path.chmod(0o666)
        self.port = self._listen()
        self._files = [*self.folder.glob("*.txt"), *INSIDE.glob("*.py"), Path(os.__file__), Path(json.__file__)]
        self._files += [Path(found) for found in (*find_bwraps(), "/etc/passwd") if Path(found).is_file()]
        self._before = self._hashes()
        self._names = sorted(path.name for path in self.folder.iterdir())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._folder.cleanup()

    @property
    def holes(self) -> dict[str, str]:
        """The facts that attacks are given."""
        return {
            "FOLDER": str(self.folder),
            "PORT": str(self.port),
            "PID": str(os.getpid()),
            "HOME": str(Path.home()),
            "TOKEN": self.token,
        }

    def complaints(self) -> list[str]:
        """What is not as it was, in words; what was reached is told once."""
        found, self.reached = [f"somebody reached the {name} listener" for name in self.reached], []
        now = self._hashes()
        found += [f"{path} changed" for path, digest in self._before.items() if now[path] != digest]
        if sorted(path.name for path in self.folder.iterdir()) != self._names:
            found.append(f"files came or went in {self.folder}")
        places = {*WRITTEN, str(Path.home()), os.getcwd()}
        found += [f"a file was left in {place}" for place in sorted(places) if Path(place, self.token).exists()]
        return found

    def processes(self) -> list[int]:
        """The processes inside of sandboxes of this check, by the label in their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if self.token.encode() in words and words[0].rsplit(b"/", 1)[-1].startswith(b"python"):
                        found.append(int(entry.name))
        return found

    def _hashes(self) -> dict[Path, str]:
        """Content, rights, owner, time of change and extended attributes of every file, as one text each."""
        return {path: self._looks(path) if path.is_file() else "gone" for path in self._files}

    @staticmethod
    def _looks(path: Path) -> str:
        about = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"{digest} {about.st_mode:o} {about.st_uid} {about.st_mtime_ns} {os.listxattr(path)}"

    def _listen(self) -> int:
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        port = int(tcp.getsockname()[1])
        udp = socket.socket(type=socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", port))
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0{self.token}")
        file = socket.socket(socket.AF_UNIX)
        file.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        for name, one in (("TCP", tcp), ("UDP", udp), ("abstract", abstract), ("file", file)):
            self._sockets.append(one)
            if name != "UDP":
                one.listen()
            threading.Thread(target=self._hear, args=(name, one), daemon=True).start()
        return port

    def _hear(self, name: str, one: socket.socket) -> None:
        while True:
            try:
                if name == "UDP":
                    if not one.recvfrom(100)[0]:
                        return
                else:
                    one.accept()[0].close()
            except OSError:
                return
            self.reached.append(name)
