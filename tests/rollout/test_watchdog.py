from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from rollout_builders import by_seed, roles_for, say, task, workflow_of

from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import BlockedLoop
from rolecall.records import Outcome, Task
from rolecall.rollout.collector import Collected, Collector, CollectorSettings
from rolecall.rollout.loop import EpisodeLoop, LoopRunner
from rolecall.rollout.samplers import IndependentEpisodes
from rolecall.rollout.watchdog import EXIT_BLOCKED
from rolecall.workflows.base import Team

PLANS = IndependentEpisodes(n=1).plans([task(0), task(1)])


def blocking(seconds: float, swallows: bool = False) -> Collector:
    async def run(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        if task.id == "task1":
            try:
                time.sleep(seconds)
            except BlockedLoop:
                if not swallows:
                    raise
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    settings = CollectorSettings(watchdog_s=0.3)
    return Collector(workflow, roles_for(workflow), ScriptedEngine(by_seed), settings)


@pytest.mark.parametrize("swallows", [False, True])
def test_a_workflow_that_blocks_the_loop_is_named_with_its_stack_and_ends_the_run(
    capfd: pytest.CaptureFixture[str], swallows: bool
) -> None:
    collector = blocking(30.0, swallows)
    started = time.monotonic()
    with pytest.raises(BlockedLoop, match="workflow FromFunction on task1/s0/0 has blocked the event loop"):
        collector.collect(PLANS)
    collector.close()
    assert time.monotonic() - started < 10
    printed = capfd.readouterr().err
    assert "time.sleep(seconds)" in printed
    assert "team.effect(name, fn)" in printed


def test_a_short_block_is_left_alone_and_measured() -> None:
    collector = blocking(0.1)
    collected = collector.collect(PLANS)
    collector.close()
    assert collected.counts.outcomes["ok"] == 2
    assert 0.1 <= collected.counts.max_lag_s < 5


def test_a_loop_in_another_thread_is_ended_by_an_exception_at_its_next_bytecode() -> None:
    async def spin(task: Task, team: Team) -> Outcome:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            pass
        return Outcome(answer="1")

    workflow = workflow_of(spin)
    seen: list[BaseException | Collected] = []

    def work() -> None:
        settings = CollectorSettings(watchdog_s=0.3)
        collector = Collector(workflow, roles_for(workflow), ScriptedEngine(by_seed), settings)
        try:
            seen.append(collector.collect(PLANS))
        except BlockedLoop as error:
            seen.append(error)
        collector.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(seen[0], BlockedLoop)


def test_a_loop_that_does_not_come_back_ends_the_process_with_a_code_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(
        textwrap.dedent("""
        import time
        from rolecall.errors import BlockedLoop
        from rolecall.rollout.loop import LoopRunner

        async def stuck():
            while True:
                try:
                    time.sleep(30)
                except BlockedLoop:
                    pass

        with LoopRunner(watchdog_s=0.2, grace_s=0.3) as runner:
            runner.run(stuck())
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_BLOCKED, done.stderr
    assert "time.sleep(30)" in done.stderr


def test_idle_means_that_no_callback_is_ready_and_is_told_once_for_each_wait() -> None:
    ready_at_idle: list[int] = []
    counter = 0

    async def busy() -> None:
        nonlocal counter
        for _ in range(5):
            counter += 1
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        counter += 1

    with LoopRunner() as runner:
        loop = runner.loop
        assert isinstance(loop, EpisodeLoop)

        def at_idle() -> bool:
            ready_at_idle.append(counter)
            return False

        loop.idle_selector.watchers.append(at_idle)
        runner.run(busy())
    assert ready_at_idle[0] == 5
    assert set(ready_at_idle) == {5}
