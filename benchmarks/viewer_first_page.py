"""How long a page of `rolecall view` takes to open, by the clock: a run of 500 steps and about 100,000 turns.

The run is written as training writes one: scripted episodes with their grades, rewards and advantages, a file a step,
folded as they grow. Each page is asked of a server that has just been started and has read nothing, with the requests
that a browser makes, one after the other. Where Chromium and Playwright are installed it is opened there too, until the
page says that it stands.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Figure, figure, timed
from scripted_10000 import reply

import rolecall.viewer
from rolecall.algorithms import make_algorithm
from rolecall.config import make_config
from rolecall.dynamics.behaviour import behaviour_metrics
from rolecall.engines.scripted import ScriptedEngine
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.records import Sampling, Task
from rolecall.rollout.collector import Collector, CollectorSettings
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.transcript import RoleSettings
from rolecall.run_episodes import episode_rows, evaluation_plans
from rolecall.run_folder import RunFolder
from rolecall.workflows import SolveVerifyCorrect

STEPS = 500
TASKS_PER_STEP, PEERS_PER_TASK = 8, 8
MORE_KEYS = 110  # beside those that scripted episodes give: about as many as a run with a learner has
PEERS: dict[str, str] = {}
PAGES = {
    "list": "/",
    "curves": "/curves?run=long",
    "episodes": "/episodes?run=long",
    "episode": "/episode?run=long&id=",
}
FIGURES = {
    "list": "seconds until the list of runs is there (aim: under 1)",
    "curves": "seconds until a run's curves are there (aim: under 1)",
    "episodes": "seconds until the newest episodes of a run are there (aim: under 1)",
    "episode": "seconds until one episode of an old step is there (aim: under 1)",
    "list/chromium": "the same in Chromium, the page drawn (where it is installed)",
    "curves/chromium": "the same in Chromium",
    "episodes/chromium": "the same in Chromium",
    "episode/chromium": "the same in Chromium",
    "start": "seconds until the command `rolecall view` listens",
    "turns": "turns of the run",
    "megabytes": "size of its episode files",
}
STANDS = "!!document.querySelector('main[data-shown]') && !document.querySelector('main > .wait')"


def write_run(path: Path) -> int:
    """A run folder as training leaves it behind; returns its turns."""
    settings = {"name": "long", "steps": STEPS, "workflow": {"name": "solve_verify_correct"}}
    config = make_config({**settings, "tasks": {"name": "reasoning_gym"}, "algorithm": {"name": "agent_grpo"}})
    folder = RunFolder.create(path, config, overwrite=False)
    workflow = SolveVerifyCorrect(max_rounds=2, answer_format="text")
    roles = {
        role: RoleSettings(policy="shared", sampling=Sampling(max_tokens=128), renderer=PlainRenderer())
        for role in workflow.roles
    }
    algorithm = make_algorithm("agent_grpo", {"n": PEERS_PER_TASK})
    collector = Collector(workflow, roles, ScriptedEngine(reply), CollectorSettings(deterministic=True))
    turns = 0
    with GraderPool() as pool:
        for step in range(1, STEPS + 1):
            collected = collector.collect(evaluation_plans(make_tasks(step), PEERS_PER_TASK), step)
            graded = grade_episodes(collected.episodes, pool)
            credit = algorithm.advantages(graded, {})
            transcripts = {one.id: one for one in collected.transcripts}
            folder.write_episodes(step, episode_rows(step, graded, credit, transcripts))
            metrics = collected.counts.metrics() | behaviour_metrics(graded) | dict(credit.metrics)
            metrics |= {f"learner/shared/more_{i}": step / (i + 1) for i in range(MORE_KEYS)}
            metrics["reward/team"] = sum(one.team.right for one in graded) / len(graded)
            folder.write_metrics(step, metrics)
            turns += collected.counts.turns
    collector.close()
    folder.close()
    return turns


def make_tasks(step: int) -> list[Task]:
    return [
        Task(id=f"task{step}-{i}", question=f"What is {step} + {i}?", answer=str(step + i))
        for i in range(TASKS_PER_STEP)
    ]


@contextmanager
def served(runs: Path) -> Iterator[tuple[str, float]]:
    """The address of `rolecall view`, just started, and how long that took."""
    command = [sys.executable, "-m", "rolecall.cli", "view", str(runs), "--no-browser", "--port", "0"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.match(r"http://(127\.0\.0\.1:\d+)/", process.stdout.readline())
        assert found is not None, "rolecall view said no address"
        ask(found[1], "/static/icon.svg")
        yield found[1], time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait()


def ask(host: str, *paths: str) -> list[Any]:
    """The answers to some requests over one connection, in turn; JSON is read."""
    connection = http.client.HTTPConnection(host, timeout=60)
    found = []
    for path in paths:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:200])
        found.append(json.loads(body) if path.startswith("/api/") else body)
    connection.close()
    return found


def requests_of(page: str, address: str) -> list[str]:
    """What a browser asks for when it opens a page: the page, its files, then its data."""
    static = Path(rolecall.viewer.__file__).parent / "static"
    files = [f"/static/{file.name}" for file in sorted(static.iterdir()) if file.suffix != ".html"]
    query = address.partition("?")[2]
    run = "/api/run?run=long"
    data = {
        "list": ["/api/runs", "/api/sparks?run=long"],
        "curves": [run, "/api/series?run=long&key=reward/team&key=validation/team"],
        "episodes": [run, f"/api/episodes?{query}"],
        "episode": [run, f"/api/episode?{query}"],
    }
    return [address, *files, *data[page]]


@contextmanager
def chromium() -> Iterator[Callable[[str], float] | None]:
    """A function that opens an address and returns the seconds until the page stands; None without a browser."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        program = None
    if program is None:
        yield None
        return
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])

        def opened(address: str) -> float:
            context = browser.new_context()
            page = context.new_page()
            page.set_default_timeout(120_000)
            begun = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("main[data-shown]")
            while not page.evaluate(STANDS):
                page.wait_for_timeout(5)
            seconds = time.perf_counter() - begun
            context.close()
            return seconds

        yield opened
        browser.close()


def run(repeats: int) -> dict[str, Figure]:
    with tempfile.TemporaryDirectory() as where:
        runs = Path(where)
        turns = write_run(runs / "long")
        pages = dict(PAGES)
        with served(runs) as (host, _):
            (found,) = ask(host, "/api/episodes?run=long&order=oldest&limit=1")
            pages["episode"] += found["rows"][0]["episode"]
        with chromium() as opened:
            rounds = [measured(runs, pages, opened) for _ in range(repeats + 1)]
        size = sum(file.stat().st_size for file in (runs / "long" / "episodes").iterdir()) / 1e6
    counted = rounds[1:]  # in the first, files come from the disk
    figures = {name: figure([one[name] for one in counted], "s") for name in counted[0]}
    return figures | {"turns": figure([turns], "turns"), "megabytes": figure([size], "MB")}


def measured(runs: Path, pages: dict[str, str], opened: Callable[[str], float] | None) -> dict[str, float]:
    """Every page once, each from a server of its own."""
    found: dict[str, float] = {}
    for page, address in pages.items():
        with served(runs) as (host, found["start"]):
            found[page] = timed(lambda host=host, page=page: ask(host, *requests_of(page, pages[page])))
        if opened is not None:
            with served(runs) as (host, _):
                found[f"{page}/chromium"] = opened(f"http://{host}{address}")
    return found
