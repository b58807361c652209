"""The one object through which a run watches its dynamics: drift on a probe set, what it costs, and the alarms."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rolecall.dynamics.alarm_rules import RULES
from rolecall.dynamics.alarms import Alarm, AlarmBoard
from rolecall.dynamics.drift import Array, ProbeRow, mean_kl, probe_rows, turns_by_role
from rolecall.dynamics.leakage import Leakage, format_metrics
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.records import GradedEpisode, Turn
from rolecall.workflows.base import Workflow

SUMMED = ("optimizer_steps", "update_norm", "push")
"""What of a role's effective push is also summed over the run."""


class Clock(Protocol):
    seconds: float
    copies_seconds: float


class Watched(Protocol):
    """What the monitor asks of a learner."""

    @property
    def watch(self) -> Clock: ...

    @property
    def vocab_size(self) -> int: ...

    def watch_with(self, settings: DynamicsSettings) -> None: ...

    def next_token_logprobs(self, rows: Sequence[ProbeRow], *, base: bool = False) -> Array: ...


class DynamicsMonitor:
    """Call in this order in every step: `before_update`, the learners' updates, `after_update`, and at the end, with
    all metrics of the step, `alarms`. Nothing here changes a weight or a random number.

    `roles`: every role and its policy. `train_roles`: those that are trained (None: all whose policy has a learner).
    `workflow`: knows the formats of the roles; without it nothing is said of them.
    `temperatures`: of the roles' sampling, at which their distributions are compared. `coarse`: policies computed in
    bfloat16.
    """

    def __init__(
        self,
        learners: Mapping[str, Watched],
        roles: Mapping[str, str],
        settings: DynamicsSettings | None = None,
        *,
        train_roles: Iterable[str] | None = None,
        temperatures: Mapping[str, float] | None = None,
        coarse: Iterable[str] = (),
        workflow: Workflow | None = None,
    ) -> None:
        self.settings = settings or DynamicsSettings()
        self.learners = dict(learners)
        for learner in self.learners.values():
            learner.watch_with(self.settings)
        self.roles = {role: policy for role, policy in roles.items() if policy in self.learners}
        trained = self.roles if train_roles is None else set(train_roles) & self.roles.keys()
        self.temperatures = dict(temperatures or {})
        self.board = AlarmBoard(
            RULES, {r: p for r, p in self.roles.items() if r in trained}, self.settings.alarms, coarse=coarse
        )
        self.leakage, self.workflow = Leakage(self.settings), workflow
        self.rows: dict[str, list[ProbeRow]] = {}
        self.totals: dict[str, float] = {}
        self._base: dict[str, Array] = {}
        self._last: dict[str, Array] = {}
        self._probe_s = 0.0
        self._spoken: dict[str, float] = {}

    def before_update(self, step: int, graded: Iterable[GradedEpisode]) -> None:
        """Look at how the roles speak, take those that are seen for the first time into the probe set, and score the
        set where the step is due. What earlier versions wrote (`partners`) is not how a role speaks now."""
        for learner in self.learners.values():
            learner.watch.seconds = learner.watch.copies_seconds = 0.0
        self._probe_s, self._last = 0.0, {}
        begun = time.perf_counter()
        turns = {
            role: [turn for turn in said if turn.policy == self.roles.get(role, turn.policy)]
            for role, said in turns_by_role(graded).items()
        }
        self._spoken = self.leakage.update(turns)
        if self.workflow is not None:
            self._spoken |= format_metrics(turns, self.workflow)
        self._spoken["time/leakage_s"] = time.perf_counter() - begun
        if not self.settings.probe_every_steps:
            return
        begun = time.perf_counter()
        self._fill(turns)
        if self.settings.probe_due(step):
            for role, rows in self.rows.items():
                if role not in self._base:
                    self._base[role] = self._learner(role).next_token_logprobs(rows, base=True)
                self._last[role] = self._learner(role).next_token_logprobs(rows)
            self._probe_s = time.perf_counter() - begun

    def after_update(self, step: int, reported: Mapping[str, float] | None = None) -> dict[str, float]:
        """`dynamics/<role>/kl_base`, `kl_last` and `probe_tokens` where due; `time/dynamics_s`, `time/leakage_s` and
        (where due) `time/copies_s` and `time/probe_s`; sums over the run of what the update reports (`reported`, the
        metrics of all policies) say of each role's effective push; what `leakage.py` says of the step's turns."""
        watches = [learner.watch for learner in self.learners.values()]
        metrics = self._spoken | {"time/dynamics_s": sum(watch.seconds for watch in watches)}
        if self.settings.copies_due(step):
            metrics["time/copies_s"] = sum(watch.copies_seconds for watch in watches)
        metrics |= self._sum_up(reported or {})
        if not self._last:
            return metrics
        begun = time.perf_counter()
        for role, last in self._last.items():
            now = self._learner(role).next_token_logprobs(self.rows[role])
            metrics[f"dynamics/{role}/kl_base"] = mean_kl(now, self._base[role])
            metrics[f"dynamics/{role}/kl_last"] = mean_kl(now, last)
            metrics[f"dynamics/{role}/probe_tokens"] = float(len(now))
        self._last = {}
        metrics["time/probe_s"] = self._probe_s + time.perf_counter() - begun
        return metrics

    def alarms(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """The alarms raised by the metrics of a finished step: each once, until its trouble has gone and come again."""
        return self.board.update(step, metrics)

    def alarm_metrics(self) -> dict[str, float]:
        """`alarms/active`: how many stand; `alarms/<key>`: on how many subjects, for those that stand."""
        counts: dict[str, float] = {"alarms/active": float(len(self.board.active))}
        for key, _ in self.board.active:
            counts[f"alarms/{key}"] = counts.get(f"alarms/{key}", 0.0) + 1.0
        return counts

    def state(self) -> dict[str, Any]:
        """Plain JSON, for a checkpoint; running means of gradients are part of the learners' own state."""
        rows = {
            role: [[list(row.token_ids), list(row.positions), row.temperature] for row in probe]
            for role, probe in self.rows.items()
        }
        return {"rows": rows, "alarms": self.board.state(), "totals": self.totals, "leakage": self.leakage.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.rows = {
            role: [
                ProbeRow(token_ids=tuple(ids), positions=tuple(places), temperature=temperature)
                for ids, places, temperature in probe
            ]
            for role, probe in state["rows"].items()
        }
        self._base, self._last = {}, {}
        self.totals = dict(state.get("totals", {}))
        if "leakage" in state:
            self.leakage.restore(state["leakage"])
        self.board.restore(state["alarms"])

    def _sum_up(self, reported: Mapping[str, float]) -> dict[str, float]:
        """`dynamics/<role>/total_<name>` for every name of `SUMMED`, over all steps of the run."""
        for role in self.roles:
            for name in SUMMED:
                if (figure := reported.get(f"dynamics/{role}/{name}")) is not None:
                    key = f"dynamics/{role}/total_{name}"
                    self.totals[key] = self.totals.get(key, 0.0) + figure
        return dict(self.totals)

    def _fill(self, turns: Mapping[str, Sequence[Turn]]) -> None:
        missing = [role for role in self.roles if role not in self.rows]
        if not missing:
            return
        for role in missing:
            policy = self.roles[role]
            sharers = sum(other == policy for other in self.roles.values())
            most = self.settings.max_probe_logits // (self._learner(role).vocab_size * sharers)
            positions = max(1, min(self.settings.probe_positions, most))
            rows = probe_rows(
                turns.get(role, []), self.settings.probe_turns, positions, self.temperatures.get(role, 1.0)
            )
            if rows:
                self.rows[role] = rows

    def _learner(self, role: str) -> Watched:
        return self.learners[self.roles[role]]
