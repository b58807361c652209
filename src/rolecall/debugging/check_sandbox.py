"""`rolecall check sandbox`: does anything that a program does get out, stay, or get it scored right?"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rolecall.code_problems import CallTest, CodeProblem, CodeTest, ScriptTest, StdioTest
from rolecall.debugging.witness import Witness
from rolecall.grading.code_pool import CodePool
from rolecall.records import Grade, GradeStatus, Task
from rolecall.sandbox.hostile import ATTACKS, Attack

LIMITS = {"cpu_s": 0.4, "wall_s": 0.8, "memory_mib": 256, "output_bytes": 1 << 20}
SANDBOXES = 2  # of one worker: one for programs, one for tests
SETTLE_S = 5.0
HONEST = "import os\nprint(int(input()) + len(os.listdir('.')))"  # and what others left is seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One attack: was it contained, was it scored right, and in words why it was not contained.

    >>> Tried(name="fork bomb", contained=True, scored=False, seconds=0.1).good
    True
    """

    name: str
    contained: bool
    scored: bool
    seconds: float
    why: str = ""

    @property
    def good(self) -> bool:
        return self.contained and not self.scored


def check_sandbox(
    attacks: Sequence[Attack] = ATTACKS, tell: Callable[[Tried], None] | None = None, protected_by: str = ""
) -> tuple[str, list[Tried]]:
    """Try every attack under the protection that is active here, or the one named; its words, and what came of each.
    `SandboxError` when there is no protection: nothing hostile is ever run without."""
    found: list[Tried] = []
    with Witness() as witness:
        with CodePool(workers=1, label=witness.token, protected_by=protected_by) as pool:
            words = pool.start().words
            _grade(pool, HONEST, _honest_test())  # the sandbox is warm: seconds are those of attacks
            for attack in attacks:
                found.append(_try(pool, witness, attack))
                if tell is not None:
                    tell(found[-1])
        gone = _wait_for(lambda: not witness.processes())
        left = f"processes {witness.processes()} are left after the sandboxes were closed" if not gone else ""
        found.append(Tried(name="the end of all sandboxes", contained=gone, scored=False, seconds=0.0, why=left))
    return words, found


def _try(pool: CodePool, witness: Witness, attack: Attack) -> Tried:
    begun = time.perf_counter()
    grade = _grade(pool, attack.filled(witness.holes), _test(attack, witness.secret))
    seconds = time.perf_counter() - begun
    why = witness.complaints()
    if grade.status is GradeStatus.FAILED:
        why.append(f"the grader itself failed: {grade.detail}")
    if witness.secret in grade.detail:
        why.append("the secret came out")
    if not _wait_for(lambda: len(witness.processes()) <= SANDBOXES):
        why.append(f"processes were left: {witness.processes()}")
    after = _grade(pool, HONEST, _honest_test())
    if not after.right:
        why.append(f"the next program suffered: {after.detail}")
    return Tried(name=attack.name, contained=not why, scored=grade.right, seconds=seconds, why="; ".join(why))


def _grade(pool: CodePool, source: str, test: CodeTest) -> Grade:
    problem = CodeProblem(tests=(test,), limits=LIMITS if source is not HONEST else {})
    task = Task(id="check", question="", answer=None, grader="code", metadata={"code": problem.record()})
    grades: queue.SimpleQueue[Grade] = queue.SimpleQueue()
    pool.submit(source, task, grades.put)
    return grades.get()


def _honest_test() -> CodeTest:
    number = int.from_bytes(os.urandom(3), "big")
    return StdioTest(stdin=str(number), stdout=str(number))


def _test(attack: Attack, secret: str) -> CodeTest:
    if attack.kind == "stdio":
        return StdioTest(stdin="no hint", stdout=secret)
    if attack.kind == "call":
        return CallTest(function="answer", arguments=(), expected=secret)
    return ScriptTest(script=f"assert answer() == {secret!r}", functions=("answer",))


def _wait_for(condition: Callable[[], bool]) -> bool:
    """Whether it comes true soon: a killed process takes a moment to be gone."""
    until = time.monotonic() + SETTLE_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
