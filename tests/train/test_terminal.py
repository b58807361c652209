"""What the command line prints on terminals that cannot show it."""

from __future__ import annotations

import io

from rich.console import Console

from rolecall.cli import forgive
from rolecall.progress import bar


def test_a_terminal_that_cannot_show_a_letter_never_ends_a_run() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    forgive(stream)
    Console(file=stream).print(f"größe {bar(0.5, width=2)}")
    stream.flush()
    assert written.getvalue() == b"gr??e ??\n"
