"""The sandbox where bubblewrap does not work: Landlock, a stricter filter, limits; what ends with what."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rolecall.code_problems import CodeProblem, ScriptTest
from rolecall.debugging.check_sandbox import check_sandbox
from rolecall.errors import SandboxError, UsageError
from rolecall.grading import GraderPool
from rolecall.records import GradeStatus, Task
from rolecall.sandbox import Box, BoxLost, Job, Limits, Protection, library, protection
from rolecall.sandbox.hostile import ATTACKS
from rolecall.sandbox.inside import landlock
from rolecall.sandbox.inside.folder import Folder, empty
from rolecall.tasks import HumanEval

protections = sys.modules["rolecall.sandbox.protection"]
OFFERED = landlock.abi()
needs_landlock = pytest.mark.skipif(OFFERED < landlock.WHOLE, reason="this kernel has no whole Landlock")


@pytest.fixture(autouse=True)
def found_anew() -> Iterator[None]:
    """What was found out about this machine is forgotten before and after."""
    for cached in (protections._strongest, protections._named):
        cached.cache_clear()
    yield
    for cached in (protections._strongest, protections._named):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def under(abi: int) -> Protection:
    return Protection(name="landlock", words="", privileged=os.geteuid() == 0, abi=abi)


def soon(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 20.0
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_rights_grow_with_the_abi_as_the_kernel_lists_them():
    assert landlock.rights(1) == 0x1FFF
    assert [landlock.rights(n) ^ landlock.rights(n - 1) for n in range(2, 7)] == [
        landlock.REFER,
        landlock.TRUNCATE,
        0,
        landlock.IOCTL_DEV,
        0,
    ]
    assert landlock.ruleset(3) == struct.pack("=Q", 0x7FFF)
    assert landlock.ruleset(4) == struct.pack("=QQ", 0x7FFF, 3)
    assert landlock.ruleset(6) == struct.pack("=QQQ", 0xFFFF, 3, 3)


@needs_landlock
@pytest.mark.parametrize("abi", sorted({landlock.WHOLE, 4, 5, OFFERED} & set(range(OFFERED + 1))))
def test_programs_run_and_reach_nothing_under_every_abi_that_counts_as_whole(abi, tmp_path):
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    for path in (outside, *tmp_path.parents[:-1]):
        if os.stat(path).st_uid == os.geteuid():
            os.chmod(path, 0o777)
    with Box(under(abi)) as box:
        assert box.run(Job(source="open('a', 'w').write('7')\nprint(open('a').read())")).stdout == "7\n"
        for source in (
            f"print(open({str(outside)!r}).read())",
            f"open({str(outside)!r}, 'a').write('x')",
            f"import os\nos.open({str(outside)!r}, os.O_RDONLY | os.O_TRUNC)",
            f"import os\nos.chmod({str(outside)!r}, 0)",
            f"import os\nprint(os.listdir({str(tmp_path)!r}))",
            "import os\nopen(os.__file__, 'a')",
            "import socket\nsocket.socket()",
            "import os\nos.fork()",
        ):
            assert "PermissionError" in box.run(Job(source=source)).reason, source
    assert outside.read_text() == "secret"


@needs_landlock
def test_the_environment_is_scrubbed_and_only_copies_of_the_library_are_there(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "abc")
    with Box(under(OFFERED)) as box:
        said = box.run(Job(source="import os, sys\nprint(dict(os.environ), sys.path, os.__file__)")).stdout
        assert "MY_TOKEN" not in said
        assert str(Path(os.__file__).parent) not in said
        assert box.run(Job(source="import sqlite3, ssl, asyncio, decimal\nprint(7)")).stdout == "7\n"
        assert not box.run(Job(source="import pytest")).ok


@needs_landlock
def test_what_is_written_is_bounded_and_gone_for_the_next_program():
    with Box(under(OFFERED)) as box:
        for source in (
            "n = 0\nwhile True:\n    open(str(n), 'wb').write(b'x' * (1 << 20))\n    n += 1",
            "n = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1",
            "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
        ):
            ran = box.run(Job(source=source, limits=Limits(cpu_s=20.0, wall_s=60.0)))
            assert ran.killed == "disk", ran
            assert "more files than it may write" in ran.reason
            assert box.run(Job(source="import os\nprint(os.listdir('.'))")).stdout == "[]\n"
        home = box._home
        assert home is not None
    assert not home.exists()


@needs_landlock
def test_a_program_ends_with_the_first_process_of_its_sandbox():
    seen: list[int] = []
    with Box(under(OFFERED)) as box:

        def end(_: object) -> None:
            assert box.pid is not None
            assert soon(lambda: bool(children(box.pid)))
            seen.extend(children(box.pid))
            os.kill(box.pid, signal.SIGKILL)  # that process alone, not its group

        with pytest.raises(BoxLost):
            box.run(Job(source="import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)"), end)
        assert len(seen) == 1
        assert soon(lambda: not alive(seen[0]))


@needs_landlock
def test_everything_ends_with_a_host_that_is_killed_and_its_folders_go_with_the_next():
    source = """
import os, sys
from rolecall.sandbox import Box, Job, Protection
box = Box(Protection(name="landlock", words="", privileged=os.geteuid() == 0, abi=int(sys.argv[1])))
box.start()
def say(_):
    print(box.pid, box._home.parent, flush=True)
box.run(Job(source="import time\\ntime.sleep(1000)"), say)
"""
    host = subprocess.Popen([sys.executable, "-c", source, str(OFFERED)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pid, folder = host.stdout.readline().split()
    assert soon(lambda: bool(children(int(pid))))
    inside = [int(pid), *children(int(pid))]
    host.kill()
    host.wait()
    host.stdout.close()
    assert soon(lambda: not any(alive(one) for one in inside))
    assert Path(folder).is_dir()
    os.utime(folder, (0, 0))  # long ago: what is new may not have its lock yet
    library.locked_folder()
    assert not Path(folder).exists()
    own = library.new_home()
    os.utime(own.parent, (0, 0))
    library.locked_folder()
    assert own.exists(), "what a living process uses stays"
    library.remove(own)


def test_landlock_is_taken_where_bubblewrap_does_not_work(monkeypatch):
    monkeypatch.setattr(protections, "find_bwraps", list)
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(SandboxError, match=r"no bwrap is installed; the kernel offers no Landlock; wanted ABI 3"):
        protection()
    if landlock.WHOLE > OFFERED:
        return
    protections._strongest.cache_clear()
    protections._named.cache_clear()
    monkeypatch.setattr(landlock, "abi", lambda: OFFERED)
    made = protection()
    assert made.name == "landlock"
    assert f"Landlock ABI {OFFERED}" in made.words
    assert "whether a path exists" in made.words, "what it does not hide is said"


@needs_landlock
def test_an_incomplete_landlock_is_refused_unless_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(protections, "find_bwraps", list)
    monkeypatch.setattr(landlock, "abi", lambda: 1)
    with pytest.raises(SandboxError, match=r"only ABI 1 of Landlock.*unsandboxed = true"):
        protection()
    made = protection(allow_none=True)
    assert (made.name, made.abi) == ("landlock", 1)
    assert "INCOMPLETE" in made.words
    with Box(made) as box:
        assert "PermissionError" in box.run(Job(source="open('/etc/passwd')")).reason


@needs_landlock
def test_a_landlock_that_does_not_hold_is_refused(monkeypatch):
    """The probe tries what must fail: a rule too many, and the protection is not taken."""
    monkeypatch.setattr(protections.Protection, "around", property(lambda made: "none"))
    with pytest.raises(SandboxError, match="a program reads a file outside"):
        protection(name="landlock")


@needs_landlock
def test_a_pool_grades_under_landlock_as_it_does_under_bubblewrap(monkeypatch):
    """Programs, calls across the wall, and NumPy: right, wrong, and what it writes for people."""
    monkeypatch.setattr(protections, "find_bwraps", list)
    tasks = list(HumanEval().tasks())[:6]
    script = "import numpy as np\nassert np.allclose(f(np.ones(3)), 3 * np.ones(3))"
    problem = CodeProblem(tests=(ScriptTest(script=script, functions=("f",)),))
    arrays = Task(id="a", question="?", answer=None, grader="code", metadata={"code": problem.record()})
    with GraderPool(workers=2) as pool:
        pool.start(["code"])
        assert pool.protection is not None
        assert pool.protection.name == "landlock"
        right = pool.grade([(task.metadata["code"]["solution"], task) for task in tasks])
        wrong = pool.grade([("    return None\n", task) for task in tasks])
        found = pool.grade([("import numpy\ndef f(x):\n    return 3 * x", arrays), ("def f(x):\n    return x", arrays)])
    assert [grade.status for grade in right] == [GradeStatus.RIGHT] * 6, right
    assert [grade.status for grade in wrong] == [GradeStatus.WRONG] * 6, wrong
    assert [grade.status for grade in found] == [GradeStatus.RIGHT, GradeStatus.WRONG], found


def test_a_protection_that_is_none_is_an_error_with_the_names():
    with pytest.raises(UsageError, match=r"no protection is called 'landlok'; did you mean 'landlock'"):
        protection(name="landlok")


@needs_landlock
def test_a_full_disk_is_a_lost_sandbox_and_no_crash(monkeypatch):
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library.tempfile, "mkdtemp", full)
    with pytest.raises(BoxLost, match="No space left on device"):
        Box(under(OFFERED)).start()


def test_a_folder_is_emptied_however_deep_it_nests_and_links_are_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    box = tmp_path / "box"
    box.mkdir()
    here = os.getcwd()
    os.chdir(box)
    try:
        for _ in range(3000):
            os.mkdir("d")
            os.symlink(tmp_path / "kept", "link")
            os.chdir("d")
    finally:
        os.chdir(here)
    (box / "closed").mkdir(mode=0)
    assert Folder(str(box)).full()
    assert not Folder(str(box)).clean(), "too much to be worth it"
    assert empty(str(box))
    assert list(box.iterdir()) == []
    assert (tmp_path / "kept" / "file").exists()


@needs_landlock
@pytest.mark.slow
def test_every_attack_is_contained_under_landlock_and_none_is_scored_right():
    words, found = check_sandbox(protected_by="landlock")
    assert "Landlock" in words
    assert [one for one in found if not one.good] == []
    assert [one.name for one in found] == [attack.name for attack in ATTACKS] + ["the end of all sandboxes"]
