"""Alarms in words: what was seen, what is usual, what to do. Plain numbers in, records out; no torch.

A rule looks at the metrics of recent steps and says of each of its subjects (a role, a policy, the team) whether its
figure is past the bound, and whether it is well back. The board turns that into alarms with hysteresis: an alarm is
raised once, after its patience, and can be raised again only after the figure was well back for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rolecall.dynamics.settings import AlarmSettings

Metrics = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """Something is off since `step`. `key` names the kind, `subject` the role or policy it is about.

    >>> Alarm(key="clip_high", subject="solver", step=9, seen="40 % clipped", usual="under 20 %", move="lower lr").text
    'clip_high, solver: 40 % clipped (usual: under 20 %). lower lr'
    """

    key: str
    subject: str
    step: int
    seen: str
    usual: str
    move: str

    @property
    def text(self) -> str:
        return f"{self.key}, {self.subject}: {self.seen} (usual: {self.usual}). {self.move}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with the words as the run prints them under `text`."""
        return asdict(self) | {"text": self.text}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Alarm:
        return cls(**{name: value for name, value in data.items() if name != "text"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """What a rule says of one subject in one step; neither `off` nor `well` changes nothing. `patience`: steps in a row
    before the alarm is raised or forgotten (0: the setting's)."""

    key: str
    subject: str
    off: bool
    well: bool
    seen: str = ""
    usual: str = ""
    move: str = ""
    patience: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What rules look at: the metrics of this step, what came before, and who trains what."""

    now: Metrics
    past: Mapping[str, Sequence[float]]  # the last values of the keys in REMEMBERED, oldest first
    roles: Mapping[str, str]  # trained role to policy
    settings: AlarmSettings
    coarse: frozenset[str] = frozenset()  # policies computed in bfloat16
    peak: Mapping[str, float] = field(default_factory=dict)  # the best validation: mean, low
    start: Mapping[str, float] = field(default_factory=dict)  # entropy of each role in the first steps

    def policies(self) -> list[str]:
        return sorted(set(self.roles.values()))

    def by_role(self, area: str, name: str) -> Iterator[tuple[str, float]]:
        """The figure `<area>/<role>/<name>` of every role that has it now."""
        for role in self.roles:
            if (found := self.now.get(f"{area}/{role}/{name}")) is not None:
                yield role, found

    def by_policy(self, name: str) -> Iterator[tuple[str, float]]:
        """The figure `learner/<policy>/<name>` of every policy that has it now."""
        for policy in self.policies():
            if (found := self.now.get(f"learner/{policy}/{name}")) is not None:
                yield policy, found

    def by_sharers(self, name: str) -> Iterator[tuple[str, dict[str, float]]]:
        """Every policy of which two roles or more have the figure `dynamics/<role>/<name>` now, and these figures."""
        figures = dict(self.by_role("dynamics", name))
        for policy in self.policies():
            own = {role: value for role, value in figures.items() if self.roles[role] == policy}
            if len(own) > 1:
                yield policy, own


Rule = Callable[[Scene], Iterable[Signal]]


@dataclass(slots=True)
class _Streak:
    off: int = 0
    well: int = 0
    raised: bool = False


class AlarmBoard:
    """Raises alarms over the steps of a run. `log` holds every alarm raised; `active` those not forgotten since."""

    def __init__(
        self,
        rules: Sequence[Rule],
        roles: Mapping[str, str],
        settings: AlarmSettings | None = None,
        *,
        coarse: Iterable[str] = (),
    ) -> None:
        self.rules = tuple(rules)
        self.roles = dict(roles)
        self.settings = settings or AlarmSettings()
        self.coarse = frozenset(coarse)
        self.log: list[Alarm] = []
        self._streaks: dict[tuple[str, str], _Streak] = {}
        self._past: dict[str, list[float]] = {}
        self._peak: dict[str, float] = {}
        self._start: dict[str, list[float]] = {}

    @property
    def active(self) -> tuple[tuple[str, str], ...]:
        """(key, subject) of every alarm that stands."""
        return tuple(sorted(name for name, streak in self._streaks.items() if streak.raised))

    def update(self, step: int, metrics: Metrics) -> list[Alarm]:
        """Take in the metrics of a finished step and return the alarms that are raised now."""
        self._note_start(metrics)
        scene = Scene(
            now=metrics,
            past=self._past,
            roles=self.roles,
            settings=self.settings,
            coarse=self.coarse,
            peak=dict(self._peak),
            start={role: sum(seen) / len(seen) for role, seen in self._start.items() if len(seen) == START_STEPS},
        )
        raised: list[Alarm] = []
        for rule in self.rules:
            for signal in rule(scene):
                if self._moves(signal):
                    raised.append(
                        Alarm(
                            key=signal.key,
                            subject=signal.subject,
                            step=step,
                            seen=signal.seen,
                            usual=signal.usual,
                            move=signal.move,
                        )
                    )
        self.log += raised
        self.remember(metrics)
        return raised

    def state(self) -> dict[str, Any]:
        """Plain JSON, for a checkpoint: a resumed run raises the same alarms in the same steps."""
        return {
            "log": [alarm.to_dict() for alarm in self.log],
            "streaks": [[*name, streak.off, streak.well, streak.raised] for name, streak in self._streaks.items()],
            "past": self._past,
            "peak": self._peak,
            "start": self._start,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.log = [Alarm.from_dict(alarm) for alarm in state["log"]]
        self._streaks = {(key, who): _Streak(off, well, raised) for key, who, off, well, raised in state["streaks"]}
        self._past = {key: list(values) for key, values in state["past"].items()}
        self._peak = dict(state["peak"])
        self._start = {role: list(seen) for role, seen in state["start"].items()}

    def _moves(self, signal: Signal) -> bool:
        """Count the step for the alarm; True when it is raised by it."""
        streak = self._streaks.setdefault((signal.key, signal.subject), _Streak())
        patience = signal.patience or self.settings.patience
        if streak.raised:
            streak.well = streak.well + 1 if signal.well else 0
            if streak.well >= patience:
                self._streaks[(signal.key, signal.subject)] = _Streak()
            return False
        streak.off = streak.off + 1 if signal.off else 0
        streak.raised = streak.off >= patience
        return streak.raised

    def _note_start(self, metrics: Metrics) -> None:
        for role in self.roles:
            entropy, seen = metrics.get(f"dynamics/{role}/entropy"), self._start.setdefault(role, [])
            if entropy is not None and len(seen) < START_STEPS:
                seen.append(entropy)

    def remember(self, metrics: Metrics) -> None:
        """Keep what later steps are compared with; it goes into every checkpoint, so it is no more than that."""
        for key, value in metrics.items():
            if key.endswith(REMEMBERED):
                self._past[key] = [*self._past.get(key, []), value][-self.settings.window :]
        mean, low = metrics.get("validation/team"), metrics.get("validation/team_low")
        if mean is not None and low is not None and mean > self._peak.get("mean", -1.0):
            self._peak = {"mean": mean, "low": low}


START_STEPS = 3
"""Steps whose mean entropy is what a role started with."""

REMEMBERED = (
    "/grad_norm", "/kl_last", "/num_right_judged", "/num_false_alarms", "/num_wrong_given", "/num_copied_wrong",
)  # fmt: skip
"""Ends of the keys whose values in the steps before are looked at."""
