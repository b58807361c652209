"""All attacks, in the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rolecall.sandbox.hostile.escapes import FILES, NETWORK
from rolecall.sandbox.hostile.exhaustion import ENDINGS, MEMORY, OUTPUT, TIME
from rolecall.sandbox.hostile.graders import CALLS, SCRIPTS, VALUES
from rolecall.sandbox.hostile.processes import PROCESSES, SIGNALS

Kind = Literal["stdio", "call", "script"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """A hostile program, and the kind of test that it is an answer to.

    >>> Attack(name="fork", kind="stdio", source="import os; os.fork()").filled({}).count("fork")
    1
    """

    name: str
    kind: Kind
    source: str

    def filled(self, holes: dict[str, str]) -> str:
        """The source with the facts of the host in it."""
        source = self.source
        for name, value in holes.items():
            source = source.replace(f"@{name}@", value)
        return source


_BY_KIND: tuple[tuple[Kind, dict[str, str]], ...] = (
    ("stdio", PROCESSES),
    ("stdio", SIGNALS),
    ("stdio", NETWORK),
    ("stdio", FILES),
    ("stdio", MEMORY),
    ("stdio", OUTPUT),
    ("stdio", TIME),
    ("stdio", ENDINGS),
    ("stdio", VALUES),
    ("call", CALLS),
    ("script", SCRIPTS),
)
ATTACKS: tuple[Attack, ...] = tuple(
    Attack(name=name, kind=kind, source=source) for kind, programs in _BY_KIND for name, source in programs.items()
)
assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
