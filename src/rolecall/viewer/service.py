"""What the pages ask for, as plain data: one function an endpoint, over the runs below a root."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from threading import RLock
from typing import Any, TypeVar

from rolecall.viewer.episode import diff_texts, episode_view, find_turn
from rolecall.viewer.episodes import TRAINING, Episodes, Query
from rolecall.viewer.metrics import Metrics, alarms, finite, policy_names, role_names, thinned
from rolecall.viewer.parts import NotThere, step_parts
from rolecall.viewer.records import context_of
from rolecall.viewer.runs import Root, RunPath
from rolecall.viewer.tokens import token_view

T = TypeVar("T")
OPEN_RUNS = 24
MAX_POINTS = 600
SPARK_KEYS = ("validation/team", "reward/team")
STEP_KEYS = ("episodes/started", "reward/team", "validation/team", "engine/tokens", "engine/tokens_per_s")


class OpenRun:
    """A run with its indexes; one request at a time uses it."""

    def __init__(self, path: RunPath) -> None:
        self.path = path
        self.metrics = Metrics(path.path / "metrics")
        self.episodes = Episodes(path.path)
        self.lock = RLock()

    def with_metrics(self, use: Callable[[], T]) -> T:
        """Refresh the metrics and use them; once more when a file is folded into another meanwhile."""
        return self._with(self.metrics.refresh, use)

    def with_episodes(self, use: Callable[[], T]) -> T:
        """Refresh the index of episodes and use it; once more when a file is folded into another meanwhile."""
        return self._with(self.episodes.refresh, use)

    def roles(self) -> list[str]:
        """The roles in the workflow's order."""
        return self.with_metrics(
            lambda: role_names(self.metrics.names(), self.path.config(), self.path.json("summary.json"))
        )

    def _with(self, refresh: Callable[[], None], use: Callable[[], T]) -> T:
        with self.lock:
            for _ in range(4):
                try:
                    refresh()
                    return use()
                except FileNotFoundError:
                    continue
            refresh()
            return use()


class Service:
    """The runs below a root; those opened last stay in memory."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = RLock()

    def open(self, name: str) -> OpenRun:
        """The run of a name, opened; `NotThere` when there is none."""
        path = self.root.run(name)
        with self._lock:
            run = self._open.get(name)
            if run is None:
                run = self._open[name] = OpenRun(path)
            self._open.move_to_end(name)
            while len(self._open) > OPEN_RUNS:
                self._open.popitem(last=False)
            return run

    def pulse(self, names: Sequence[str]) -> dict[str, Any]:
        """A word that changes when one of the runs (without names: any) changes."""
        runs = [self.root.run(name) for name in names] if names else list(self.root.runs().values())
        states = [(run.name, run.pulse(), run.status(run.config(), run.json("summary.json")).state) for run in runs]
        return {"version": hashlib.sha256(repr(states).encode()).hexdigest()[:16]}

    def runs(self) -> dict[str, Any]:
        """All runs, from their configurations, summaries and file names alone."""
        return {"root": str(self.root.path), "runs": [_brief(run) for run in self.root.runs().values()]}

    def sparks(self, names: Sequence[str]) -> dict[str, Any]:
        """A small curve for each run: team accuracy on validation, else the team's reward."""
        return {name: self._spark(self.open(name)) for name in names}

    def run(self, name: str) -> dict[str, Any]:
        """What every page of a run needs to know."""
        run = self.open(name)
        config, summary = run.path.config(), run.path.json("summary.json")
        keys = run.with_metrics(run.metrics.names)
        sources = run.with_episodes(run.episodes.sources)
        return _brief(run.path) | {
            "config": config,
            "environment": run.path.json("environment.json"),
            "summary": summary,
            "keys": keys,
            "alarms": run.with_metrics(lambda: alarms(run.path.json("alarms.json").get("alarms"), run.metrics)),
            "roles": role_names(keys, config, summary),
            "policies": policy_names(keys),
            "sources": sources,
            "has_report": (run.path.path / "report.html").is_file(),
            "problems": [*run.path.problems, *run.metrics.problems, *run.episodes.problems],
        }

    def series(self, names: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
        """`{run: {key: {steps, values}}}`, thinned to what a chart can show; a key that a run lacks is left out."""
        found: dict[str, Any] = {}
        for name in names:
            run = self.open(name)
            series = run.with_metrics(lambda run=run: {key: run.metrics.series(key) for key in keys})  # type: ignore[misc]
            found[name] = {
                key: dict(zip(("steps", "values"), thinned(one, MAX_POINTS), strict=True))
                for key, one in series.items()
                if len(one[0])
            }
        return found

    def steps(self, name: str, before: int | None, limit: int) -> dict[str, Any]:
        """Steps from the newest down, each with the columns that the table shows."""
        run = self.open(name)
        roles = run.roles()
        keys = [*STEP_KEYS, *(f"reward/{role}/total" for role in roles)]

        def rows() -> dict[str, Any]:
            times = [key for key in run.metrics.names() if key.startswith("time/")]
            series = {key: dict(zip(*map(list, run.metrics.series(key)), strict=True)) for key in [*keys, *times]}
            steps = sorted({step for one in series.values() for step in one}, reverse=True)
            chosen = [step for step in steps if before is None or step < before][:limit]
            return {
                "columns": [key for key in keys if series[key]],
                "rows": [
                    {
                        "step": int(step),
                        "values": {key: finite(series[key].get(step)) for key in keys if series[key]},
                        "time_s": finite(sum(series[key].get(step, 0.0) for key in times)),
                    }
                    for step in chosen
                ],
                "total": len(steps),
                "more": bool(chosen and chosen[-1] != steps[-1]),
            }

        return run.with_metrics(rows)

    def step(self, name: str, step: int) -> dict[str, Any]:
        """One step: all its metrics beside those of the step before, and its episodes by task."""
        run = self.open(name)
        values = run.with_metrics(lambda: run.metrics.at(step))
        rows = run.with_episodes(lambda: run.episodes.step(step))
        if not values and not rows:
            last = max((part.span[1] for part in step_parts(run.path.path / "metrics")), default=0)
            raise NotThere(f"run {name!r} has no step {step}; its last step is {last}")
        earlier = run.with_metrics(lambda: run.metrics.at(step - 1))
        tasks: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            tasks.setdefault(row["task"], []).append({key: row[key] for key in ("episode", "outcome", "team_score")})
        return {
            "step": step,
            "values": {key: finite(value) for key, value in values.items()},
            "earlier": {key: finite(value) for key, value in earlier.items()},
            "tasks": [{"task": task, "episodes": episodes} for task, episodes in tasks.items()],
        }

    def episodes(self, name: str, query: Query, offset: int, limit: int) -> dict[str, Any]:
        """A page of the episodes that match."""
        run = self.open(name)
        page = run.with_episodes(lambda: run.episodes.page(query, offset, limit))
        return asdict(page) | {"offset": offset, "sources": run.episodes.sources(), "roles": run.roles()}

    def has_episode(self, name: str, source: str, episode: str) -> bool:
        """Whether an episode exists, without its record."""
        run = self.open(name)
        try:
            run.with_episodes(lambda: run.episodes.locate(source, episode))
        except NotThere:
            return False
        return True

    def episode(self, name: str, query: Query, episode: str) -> dict[str, Any]:
        """One episode, with its neighbours in the filtered list that it was opened from."""
        run, roles = self.open(name), self.open(name).roles()

        def view() -> dict[str, Any]:
            at = run.episodes.locate(query.source, episode)
            record = run.episodes.records.record(*at)
            found = episode_view(record, roles)
            before, after = run.episodes.neighbours(query, at)
            own = [turn for turn in found["turns"] if not turn["context"]]
            peers = own[0]["peers"] if len(own) == 1 and own[0]["id"] == found["id"] else None
            step = run.episodes.step_of(at)
            siblings = run.episodes.siblings(query.source, step, found["task"]["id"], peers)
            return found | {
                "previous": before,
                "next": after,
                "siblings": siblings,
                "roles": roles,
                "candidate": peers is not None,
                "trained_in": step,
            }

        return run.with_episodes(view)

    def tokens(self, name: str, source: str, episode: str, turn_id: str) -> dict[str, Any]:
        """The tokens of one turn; of one on the path of a candidate, as the candidate that it is itself has them."""
        record = self._record(name, source, episode)
        if any(turn["id"] == turn_id for turn in context_of(record)) and self.has_episode(name, source, turn_id):
            record = self._record(name, source, turn_id)
        return token_view(
            _turn(record, turn_id),
            config=self.open(name).path.config(),
            source=source,
            advantages=record["advantages"],
        )

    def diff(self, name: str, source: str, episode: str, turn_id: str, base_id: str) -> dict[str, Any]:
        """What a turn's text changed of another's."""
        record = self._record(name, source, episode)
        before, after = _turn(record, base_id)["text"] or "", _turn(record, turn_id)["text"] or ""
        return {"parts": diff_texts(before, after), "equal": before == after}

    def _record(self, name: str, source: str, episode: str) -> dict[str, Any]:
        run = self.open(name)
        return run.with_episodes(lambda: run.episodes.records.record(*run.episodes.locate(source, episode)))

    def _spark(self, run: OpenRun) -> dict[str, Any] | None:
        def curve() -> dict[str, Any] | None:
            for key in SPARK_KEYS:
                steps, values = thinned(run.metrics.series(key), 120)
                if len(steps) > 1:
                    return {"key": key, "steps": steps, "values": values}
            return None

        return run.with_metrics(curve)


def _turn(record: dict[str, Any], turn_id: str) -> dict[str, Any]:
    turn = find_turn(record, turn_id)
    if turn is None:
        raise NotThere(f"the episode has no turn {turn_id!r}")
    return turn


def _brief(run: RunPath) -> dict[str, Any]:
    """A run in one row."""
    config, summary = run.config(), run.json("summary.json")
    accuracy = summary.get("accuracy") or {}
    before = accuracy.get("before") or (run.json("evaluation_before.json").get("sampled") or {}).get("team")
    return {
        "name": run.name,
        "status": asdict(run.status(config, summary)),
        "workflow": config.get("workflow", {}).get("name"),
        "algorithm": config.get("algorithm", {}).get("name"),
        "sharing": config.get("sharing") or ("table" if config.get("policies") else None),
        "model": config.get("model", {}).get("model"),
        "seed": config.get("seed"),
        "wall_s": summary.get("wall_s"),
        "before": before,
        "after": accuracy.get("after"),
        "training": TRAINING,
    }
