"""What a program may use, and what came of one run of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rolecall.errors import ConfigError

Mode = Literal["program", "call", "serve", "judge"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of one run of a program. `cpu_s` decides in most cases, so that a busy machine changes no result; `wall_s`
    is for programs that wait. `output_bytes` bounds each of the outputs and every file that is written.

    >>> Limits(cpu_s=2.0).wall_s
    12.0
    """

    cpu_s: float = 4.0
    wall_s: float = 12.0
    memory_mib: int = 1024
    output_bytes: int = 4 << 20
    open_files: int = 64
    threads: int = 16

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        least = {"cpu_s": 0.05, "wall_s": 0.05, "memory_mib": 64, "output_bytes": 1024, "open_files": 16, "threads": 1}
        for name, low in least.items():
            if not getattr(self, name) >= low:
                raise ConfigError(f"limit {name} of the sandbox is {getattr(self, name)}; wanted at least {low}")

    def record(self) -> dict[str, Any]:
        return asdict(self)


def _number(name: str, value: object) -> float | int:
    """A limit as the kernel wants it: seconds as they are, what is counted as a whole number, however written."""
    most = 1e9 if name.endswith("_s") else 1 << 40
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value <= most
    if not good or not (name.endswith("_s") or value == int(value)):  # type: ignore[call-overload]
        whole = "" if name.endswith("_s") else " without a fraction"
        raise ConfigError(f"limit {name} of the sandbox is {value!r}; wanted a number{whole}, at most {most:g}")
    return float(value) if name.endswith("_s") else int(value)  # type: ignore[arg-type,call-overload]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One program to run. `source` is its text; `stdin` its input; the other fields are those of the modes `call`
    (`function`, `arguments` as `values.dumps` writes a list) and `judge` (`setup`, and `functions` that are asked for).

    >>> Job(source="print(input())", stdin="7").mode
    'program'
    """

    source: str
    mode: Mode = "program"
    stdin: str = ""
    function: str = ""
    arguments: str = "[]"
    setup: str = ""
    functions: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """How a run ended. `code` is the exit code, or minus the signal; `killed` says which limit ended it (`cpu`, `wall`,
    `abort`), or nothing. `value` is what a function call wrote: untrusted bytes, for `values.loads`.

    >>> Ran(code=0, stdout="7\\n").ok
    True
    """

    code: int
    killed: str = ""
    stdout: str = ""
    stderr: str = ""
    value: bytes = b""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_kib: int = 0

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.killed

    @property
    def reason(self) -> str:
        """Why the run did not end well, in a line; empty when it did."""
        if self.ok:
            return ""
        if self.killed:
            what = {
                "cpu": "more CPU time than it may use",
                "wall": "more time than it may take",
                "disk": "more files than it may write",
            }
            return f"stopped: {what.get(self.killed, 'no longer wanted')} ({self.cpu_s:.1f} s CPU, {self.wall_s:.1f} s)"
        lines = self.stderr.strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        return f"killed by signal {-self.code}{said}" if self.code < 0 else f"exit code {self.code}{said}"
