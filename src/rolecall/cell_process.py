"""The process of one cell: `rolecall` with the arguments that it is given, ended when whoever started it is gone.

    python -m rolecall.cell_process train --resume --run runs/tiny/Voting-IP-0.8M-Sums

Its standard input is a pipe that nobody writes to. When the matrix ends, even by SIGKILL, the pipe closes, and the cell
interrupts itself as Ctrl-C would: its last checkpoint stands, and no process is left behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from rolecall.cli import main


def watch() -> None:
    """Read until the other end is gone, then interrupt this process; end it at once if that does not help."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(30.0)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=watch, daemon=True).start()
    main()
