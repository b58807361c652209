"""What a program in a sandbox finds, and what its limits do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rolecall.errors import ConfigError, SandboxError
from rolecall.sandbox import Box, Job, Limits, Protection, protection
from rolecall.sandbox.inside import values
from rolecall.sandbox.protection import NAMES


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box() as made:
        yield made


def output(box: Box, source: str, **fields: object) -> str:
    ran = box.run(Job(source=source, **fields))
    assert ran.ok, ran
    return ran.stdout


def test_a_program_reads_its_input_and_prints(box):
    assert output(box, "print(int(input()) * 2)\nprint(input())", stdin="21\nä\n") == "42\nä\n"


def test_a_program_is_main_ends_its_threads_and_runs_its_exit_handlers(box):
    source = """
import atexit, sys, threading, time
atexit.register(print, "last")
def late():
    time.sleep(0.05)
    print("thread")
if __name__ == "__main__":
    threading.Thread(target=late).start()
sys.stdout.write("first\\n")
"""
    assert output(box, source) == "first\nthread\nlast\n"


def test_the_environment_is_scrubbed_and_the_folder_is_empty(box, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "abc")
    with Box() as fresh:
        said = output(fresh, "import os\nprint(sorted(os.environ), os.getcwd(), os.listdir('.'))")
    assert "MY_TOKEN" not in said
    assert "/box []" in said


def test_only_the_standard_library_is_there(box):
    found = set(output(box, "import os\nprint(*sorted(os.listdir('/')))").split())
    assert found <= {"box", "dev", "inside", "lib", "lib64", "python", "tmp", "usr"}
    assert not box.run(Job(source="import pytest")).ok


@pytest.mark.parametrize("name", ["asyncio", "decimal", "sqlite3", "ssl", "zlib", "unittest", "random", "hashlib"])
def test_the_standard_library_works(box, name):
    assert output(box, f"import {name}\nprint({name}.__name__)") == f"{name}\n"


def test_asyncio_runs(box):
    source = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nprint(asyncio.run(f()))"
    assert output(box, source) == "7\n"


def test_files_may_be_used_and_are_gone_for_the_next_program(box):
    assert output(box, "open('a', 'w').write('x')\nimport os\nos.mkdir('d')\nprint(open('a').read())") == "x\n"
    starts = box.starts
    assert output(box, "import os\nprint(os.listdir('.'))") == "[]\n"
    assert box.starts == starts, "cleaning up needs no new sandbox"


def test_what_cannot_be_cleaned_up_costs_the_sandbox(box):
    starts = box.starts
    assert box.run(Job(source="for n in range(500):\n    open(str(n), 'w').close()")).ok
    assert output(box, "import os\nprint(os.listdir('.'))") == "[]\n"
    assert box.starts == starts + 1


def test_the_same_program_gives_the_same_output(box):
    source = "import random\nprint(random.random(), hash('a'), list({'a', 'b', 'c'}))"
    with Box() as other:
        assert output(box, source) == output(box, source) == output(other, source)


def test_cpu_time_ends_a_program(box):
    ran = box.run(Job(source="while True:\n    pass", limits=Limits(cpu_s=0.2)))
    assert (ran.killed, ran.ok) == ("cpu", False)
    assert 0.2 <= ran.cpu_s < 1.0
    assert "more CPU time" in ran.reason


def test_wall_time_ends_a_program_that_waits(box):
    ran = box.run(Job(source="import time\ntime.sleep(60)", limits=Limits(wall_s=0.2)))
    assert (ran.killed, ran.ok) == ("wall", False)
    assert ran.cpu_s < 0.2


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="it needs Linux")
@pytest.mark.parametrize("name", NAMES)
def test_wall_time_does_not_count_what_a_busy_machine_takes(name):
    """One CPU for the program and fourteen others: .15 s of work take longer by the clock than its second, and end
    well; a program that sleeps is ended all the same."""
    cpu = min(os.sched_getaffinity(0))
    with Box(protection(name=name)) as box:
        assert output(box, "print(1)") == "1\n"
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(14)]
        try:
            for pid in [box.inner_pid, *(other.pid for other in others)]:
                os.sched_setaffinity(pid, {cpu})
            work = "import time\nwhile time.process_time() < 0.15:\n    pass\nprint(7)"
            ran = box.run(Job(source=work, limits=Limits(wall_s=1.0, cpu_s=2.0)))
            assert ran.stdout == "7\n", ran
            assert ran.wall_s > 1.0, "the machine was not busy, and the test shows nothing"
            slept = box.run(Job(source="import time\ntime.sleep(60)", limits=Limits(wall_s=1.0, cpu_s=2.0)))
            assert slept.killed == "wall"
        finally:
            for other in others:
                other.kill()
                other.wait()


def test_memory_is_bounded_and_the_error_is_the_programs(box):
    ran = box.run(Job(source="x = bytearray(300 << 20)", limits=Limits(memory_mib=200)))
    assert "MemoryError" in ran.reason
    assert box.run(Job(source="x = bytearray(100 << 20)", limits=Limits(memory_mib=200))).ok


def test_output_is_bounded(box):
    ran = box.run(Job(source="while True:\n    print('x' * 1000)", limits=Limits(output_bytes=5000)))
    assert not ran.ok
    assert len(ran.stdout) == 5000


def test_open_files_and_threads_are_bounded(box):
    many = "x = [open('/dev/null') for _ in range(100)]"
    assert "Too many open files" in box.run(Job(source=many, limits=Limits(open_files=20))).reason
    threads = "import threading, time\nfor _ in range(50):\n    threading.Thread(target=time.sleep, args=(9,)).start()"
    assert "start new thread" in box.run(Job(source=threads, limits=Limits(threads=4, wall_s=1.0))).stderr


def test_exit_codes_and_signals_are_told(box):
    assert box.run(Job(source="import sys\nsys.exit(3)")).code == 3
    assert box.run(Job(source="import sys\nsys.exit()")).ok
    assert box.run(Job(source="import os\nos.kill(os.getpid(), 15)")).code == -15
    assert box.run(Job(source="1 / 0")).reason == "exit code 1: ZeroDivisionError: division by zero"


def test_a_run_can_be_aborted_from_another_thread(box):
    begun = threading.Event()

    def stop(pending: object) -> None:
        begun.set()
        threading.Timer(0.1, lambda: box.abort(pending.number)).start()  # type: ignore[attr-defined]

    started = time.monotonic()
    ran = box.run(Job(source="import time\ntime.sleep(60)"), stop)
    assert ran.killed == "abort"
    assert time.monotonic() - started < 10
    assert output(box, "print(1)") == "1\n"


def test_a_run_that_is_aborted_before_its_limits_are_set_loses_no_sandbox(box):
    starts = box.starts
    for _ in range(30):
        ran = box.run(Job(source="import time\ntime.sleep(60)"), lambda pending: box.abort(pending.number))
        assert ran.killed == "abort"
    assert box.starts == starts


def test_a_call_returns_its_value_as_data(box):
    job = Job(source="def f(a, b):\n    return {a: (b, 2 ** 100)}", mode="call", function="f", arguments='["x", 1.5]')
    assert values.loads(box.run(job).value) == {"x": (1.5, 2**100)}


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -(2**70), 1.5, "ä\ud800", [1, [2]], (1, (2,)), {"a": {1: 2}}, {(1, 2): 3}, {1, 2}, b"\x00", 1 + 2j],
)
def test_values_cross_and_come_back_equal(value):
    found = values.loads(values.dumps(value))
    assert found == value
    assert type(found) is type(value)


def test_values_that_are_no_data_do_not_cross():
    with pytest.raises(TypeError, match="object cannot leave the sandbox"):
        values.dumps(object())
    for data in (b'{"eval": "1"}', b'{"a": 1, "b": 2}', b"[", b'{"int": "x"}'):
        with pytest.raises(ValueError):
            values.loads(data)


def test_a_sandbox_that_is_killed_is_lost_and_comes_back():
    with Box() as box:
        assert box.inner_pid is not None
        threading.Timer(0.3, os.kill, (box.inner_pid, signal.SIGKILL)).start()
        with pytest.raises(SandboxError, match="the sandbox was lost"):
            box.run(Job(source="import time\ntime.sleep(60)"))
        assert output(box, "print(1)") == "1\n"


def test_limits_may_be_written_as_recipes_write_numbers(box):
    """A recipe's table of limits holds floats: 512.0 is 512 for the kernel, and 1.5 threads are none."""
    limits = Limits(cpu_s=1, memory_mib=512.0, threads=4.0, open_files=32.0, output_bytes=4096.0)  # type: ignore[arg-type]
    assert output(box, "print(7)", limits=limits) == "7\n"


def test_limits_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="limit memory_mib of the sandbox is 1; wanted at least 64"):
        Limits(memory_mib=1)


def test_without_protection_it_is_an_error_unless_asked_for(monkeypatch):
    monkeypatch.setattr(
        sys.modules["rolecall.sandbox.protection"], "_strongest", lambda: (None, ("no bwrap is installed",))
    )
    with pytest.raises(SandboxError, match="cannot be contained here"):
        protection()
    made = protection(allow_none=True)
    assert made.name == "none"
    assert "NO SANDBOX" in made.words


def test_without_protection_limits_and_the_filter_still_hold():
    with Box(Protection(name="none", words="")) as box:
        assert output(box, "print(7)") == "7\n"
        for source in ("import os\nos.fork()", "import socket\nsocket.socket()", "import os\nos.kill(os.getppid(), 9)"):
            assert "PermissionError" in box.run(Job(source=source)).reason
