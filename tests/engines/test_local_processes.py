"""The local engine's worker processes: both used, both replaced when they die, none left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from local_builders import NEVER, generate, max_difference, plain_logprobs, ragged_prompts, read_model, request, run
from test_local_loading import SEQUENCES, changed_model, plain

from rolecall.engines.local import LocalEngine, split
from rolecall.engines.local_scheduler import Job
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import ConfigError, EngineError
from rolecall.records import Completion, Sampling


@pytest.fixture(scope="module")
def folder(tiny_model):
    return tiny_model()


@pytest.fixture(scope="module")
def engine(folder):
    made = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], LocalSettings(workers=2, deterministic=True))
    yield made
    made.shut_down()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until(condition, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def jobs(sizes: list[tuple[str, int, int]]) -> list[Job]:
    return [
        Job(
            id=i,
            policy=policy,
            prompt_ids=(prompt,) * length,
            sampling=Sampling(max_tokens=10),
            seed=i,
            end_ids=(),
            prefix=None,
        )
        for i, (policy, length, prompt) in enumerate(sizes)
    ]


def test_work_is_split_by_length_so_that_both_workers_have_about_the_same():
    asked = jobs([("p", 1 + (7 * i) % 40, i) for i in range(50)])
    first, second = (sum(job.cost for job in part) for part in split(asked, [0, 0]))
    assert abs(first - second) < 60
    parts = split(asked, [0, 300])
    assert abs(sum(job.cost for job in parts[0]) - sum(job.cost for job in parts[1]) - 300) < 60
    assert sorted(job.id for part in parts for job in part) == list(range(50))


def test_peers_of_one_prompt_and_rows_of_one_policy_stay_together():
    asked = jobs([("ab"[i % 2], 5, 7 if i % 2 else 8) for i in range(20)])
    parts = split(asked, [0, 0])
    assert [{job.policy for job in part} for part in parts] == [{"a"}, {"b"}]


def test_one_prompt_with_many_peers_still_uses_both_workers():
    parts = split(jobs([("p", 5, 1)] * 16), [0, 0])
    assert [len(part) for part in parts] == [8, 8]


def test_one_list_gives_the_same_completions_bit_for_bit_and_both_workers_answer(engine, folder):
    asked = [request("p", prompt, i, max_tokens=5 + i % 9) for i, prompt in enumerate(ragged_prompts(40))]
    first, second = generate(engine, asked), generate(engine, asked)
    assert first == second
    model = read_model(folder)
    for a, reply in zip(asked, first, strict=True):
        assert max_difference(reply.logprobs, plain_logprobs(model, a.prompt_ids, reply.token_ids)) < 1e-4


def test_waves_asked_for_at_once_run_one_after_the_other_with_the_same_result(engine):
    waves = [[request("p", prompt, i) for i, prompt in enumerate(ragged_prompts(num))] for num in (9, 10, 11)]

    async def at_once():
        return await asyncio.gather(*(engine.generate(wave) for wave in waves))

    assert run(at_once()) == [generate(engine, wave) for wave in waves]


def test_every_worker_follows_a_publish(engine, folder):
    model = changed_model(folder)
    run(engine.load("p", 1, model.state_dict()))
    for worker in range(engine.num_replicas):
        assert max_difference(run(engine.score_on(worker, "p", SEQUENCES))[0], plain(model)) < 1e-4
    assert engine.version("p") == 1
    run(engine.load("p", 2, read_model(folder).state_dict()))
    files = [name for name in os.listdir(engine.folder.name) if name.endswith(".safetensors")]
    assert len(files) == 1, "weight files of older versions stay behind"


def test_a_killed_worker_fails_its_requests_by_name_and_comes_back_with_the_current_weights(engine, folder):
    model = changed_model(folder, seed=8)
    run(engine.load("p", 3, model.state_dict()))
    victim = engine.workers[1]
    pid = victim.pid

    async def kill():
        running = asyncio.create_task(engine.generate([request("p", [i], i, max_tokens=1500) for i in range(8)]))
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        return await running

    replies = run(kill())
    lost = [reply for reply in replies if isinstance(reply, EngineError)]
    assert 0 < len(lost) < 8
    assert all("worker 1" in str(error) and str(pid) in str(error) for error in lost)
    assert all(isinstance(reply, Completion) for reply in replies if reply not in lost)
    again = generate(engine, [request("p", [i], i) for i in range(8)])
    assert all(reply.versions == (3,) * 16 for reply in again)
    assert victim.pid != pid
    assert max_difference(run(engine.score_on(1, "p", SEQUENCES))[0], plain(model)) < 1e-4
    assert victim.restarts == 1


def test_a_publish_that_meets_a_dying_worker_still_reaches_every_worker(engine, folder):
    model = changed_model(folder, seed=9)
    os.kill(engine.workers[0].pid, signal.SIGKILL)
    run(engine.load("p", 4, model.state_dict()))
    for worker in range(engine.num_replicas):
        assert max_difference(run(engine.score_on(worker, "p", SEQUENCES))[0], plain(model)) < 1e-4


def test_close_ends_every_worker_and_later_requests_say_so(folder):
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], LocalSettings(workers=1))
    pid = engine.workers[0].pid

    async def close_while_running():
        running = asyncio.create_task(engine.generate([request("p", [1], 0, max_tokens=2000)]))
        await asyncio.sleep(0.2)
        await engine.close()
        return await running

    replies = run(close_while_running())
    assert isinstance(replies[0], EngineError)
    assert gone(pid)
    assert not os.path.exists(engine.folder.name)
    with pytest.raises(EngineError, match="closed"):
        generate(engine, [request("p", [1], 0)])


CRASH = """
import os, signal, sys
from rolecall.engines.local import LocalEngine
from rolecall.engines.specs import LocalSettings, PolicySpec
engine = LocalEngine([PolicySpec(name="p", kind="model", model=sys.argv[1])], LocalSettings(workers=1))
print(engine.workers[0].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_worker_outlives_a_parent_that_was_killed(folder):
    """The script has no `__main__` guard either: workers do not import the program that started them."""
    parent = subprocess.run([sys.executable, "-c", CRASH, folder], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    assert wait_until(lambda: gone(int(parent.stdout)), 10)


def test_a_worker_that_cannot_start_gives_the_reason_once(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no_such_architecture"}')
    with pytest.raises(ConfigError, match="no_such_architecture"):
        LocalEngine([PolicySpec(name="p", kind="model", model=str(tmp_path))], LocalSettings(workers=1))


def test_memory_that_runs_out_while_decoding_is_an_error_of_those_requests(folder, monkeypatch):
    from rolecall.engines.local_fast import FastRunner

    forward = FastRunner.forward

    def fails_once(self, ids, *rest):
        if ids[0, 0].item() == 77:
            raise MemoryError("no more")
        return forward(self, ids, *rest)

    monkeypatch.setattr(FastRunner, "forward", fails_once)
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], LocalSettings(mode="inline"))
    replies = run(engine.generate([request("p", [77], 0)]))
    assert isinstance(replies[0], EngineError)
    assert "no more" in str(replies[0])
    assert len(generate(engine, [request("p", [1, 2], 0, end_ids=(NEVER,))])[0].token_ids) == 16
    engine.shut_down()


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts native threads where Linux lists them")
def test_publishing_starts_no_openmp_threads_that_would_make_the_learner_sleep_at_every_barrier(tiny_model):
    wide = tiny_model(vocab=1100)  # a tied head of 1,100 x 32 numbers: a copy is large enough for several threads
    model = changed_model(wide)
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=wide)], LocalSettings(workers=1))
    before, threads = torch.get_num_threads(), []

    async def publish_twice():
        for version in (1, 2):
            await engine.load("p", version, model.state_dict())
            threads.append(len(os.listdir("/proc/self/task")) - threading.active_count())

    try:
        torch.set_num_threads(2)
        torch.zeros(1 << 20).clone()  # the learner's own threads
        threads.append(len(os.listdir("/proc/self/task")) - threading.active_count())
        run(publish_twice())
    finally:
        torch.set_num_threads(before)
        engine.shut_down()
    assert threads[0] == threads[1] == threads[2]


def test_what_a_worker_has_in_hand_is_known_without_a_look_at_its_jobs(folder):
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], LocalSettings(mode="inline", workers=1))
    (worker,) = engine.workers
    try:
        asked = [request("p", [1] * length, length, max_tokens=3) for length in (2, 5)]
        seen, plain = [], worker.generate

        def watched(jobs):
            with worker.lock:  # no reply is taken meanwhile
                futures = plain(jobs)
                seen.append(worker.cost)
                return futures

        worker.generate = watched
        generate(engine, asked)
        assert seen == [(2 + 3) + (5 + 3)]
        assert worker.cost == 0
    finally:
        engine.shut_down()
