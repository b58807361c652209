"""Early signs as predictors of a fall: what recorded runs say about them. Metric tables in, counts and words out.

A sign warns in a run when its figure is at its threshold or above in `PATIENCE` measurements in a row; the step of the
last of these is the warning. Before a fall it is early by fall - warning steps. In a run without a fall it is a false
alarm. A run with too few validations to show a fall is neither. Nothing is claimed of a sign that fewer than
`LEAST_FALLS` falls speak for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rolecall.dynamics.cliff import WINDOW, curve_of, fall_step
from rolecall.dynamics.settings import AlarmSettings
from rolecall.intervals import Estimate, difference_width, wilson

if TYPE_CHECKING:
    from rolecall.report.read import RunData

Row = tuple[int, str, float]
Series = Mapping[int, float]

PATIENCE = 2
LEAST_FALLS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The metric rows of one run, and every role's policy.

    >>> Table.of([(1, "dynamics/solver/chi2", 0.5)], {"solver": "shared"}).values["dynamics/solver/chi2"]
    {1: 0.5}
    """

    values: Mapping[str, Series]
    roles: Mapping[str, str]
    fall: int | None  # the step at which validation was first seen to have fallen
    last: int  # step
    watched: bool  # whether there are validations enough that a fall could have been seen

    @classmethod
    def of(cls, rows: Iterable[Row], roles: Mapping[str, str]) -> Table:
        values: dict[str, dict[int, float]] = defaultdict(dict)
        kept = list(rows)
        for step, key, value in kept:
            if math.isfinite(value):
                values[key][step] = value
        last, curve = max((step for step, _, _ in kept), default=0), curve_of(kept)
        watched = sum(math.isfinite(one.mean) for one in curve) > WINDOW
        return cls(values=dict(values), roles=dict(roles), fall=fall_step(curve), last=last, watched=watched)

    @classmethod
    def of_run(cls, run: RunData) -> Table:
        """The metrics of a run folder that was read."""
        return cls.of(run.rows(), run.roles)

    def by_role(self, name: str, roles: Iterable[str] | None = None) -> list[Series]:
        """`dynamics/<role>/<name>` of these roles (None: of all)."""
        keys = [f"dynamics/{role}/{name}" for role in (self.roles if roles is None else roles)]
        return [self.values[key] for key in keys if key in self.values]

    @property
    def sharers(self) -> list[str]:
        """The roles that are not alone in their policy."""
        policies = list(self.roles.values())
        return [role for role, policy in self.roles.items() if policies.count(policy) > 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """A figure that may rise before a fall: `read` makes its series of a run's table, the largest over roles or
    policies in each step; an empty one where the run does not have it."""

    name: str
    what: str
    threshold: float
    read: Callable[[Table], Series]


def largest(series: Iterable[Series]) -> Series:
    """The largest value of each step, in order of step.

    >>> largest([{2: 1.0}, {1: 0.5, 2: 3.0}])
    {1: 0.5, 2: 3.0}
    """
    found: dict[int, float] = {}
    for one in series:
        for step, value in one.items():
            found[step] = max(value, found.get(step, value))
    return dict(sorted(found.items()))


def _aligned(table: Table) -> Series:
    """Amplification over the number of copies."""
    parts: list[Series] = []
    for role in table.roles:
        copies = table.values.get(f"dynamics/{role}/copies", {})
        seen = table.values.get(f"dynamics/{role}/amplification", {})
        parts.append({step: value / copies[step] for step, value in seen.items() if copies.get(step, 0.0) >= 2.0})
    return largest(parts)


def _captured(table: Table) -> Series:
    names = dict.fromkeys(table.roles.values())
    keys = [f"learner/{policy}/capture_index" for policy in names]
    return largest(table.values[key] for key in keys if key in table.values)


_ALARMS = AlarmSettings()

SIGNS: tuple[Sign, ...] = (
    Sign(
        name="amplification",
        what="amplification of a role's copies over their number",
        threshold=_ALARMS.aligned,
        read=_aligned,
    ),
    Sign(
        name="persistence",
        what="cosine of a role's gradient with its running mean",
        threshold=0.5,
        read=lambda table: largest(table.by_role("persistence")),
    ),
    Sign(
        name="chi2",
        what="chi-squared per token of a role against what sampled it",
        threshold=_ALARMS.chi2,
        read=lambda table: largest(table.by_role("chi2")),
    ),
    Sign(
        name="capture",
        what="capture index of a shared policy",
        threshold=0.4,
        read=_captured,
    ),
    Sign(
        name="mass",
        what="share of a shared policy's gradient mass that one role holds",
        threshold=_ALARMS.captured,
        read=lambda table: largest(table.by_role("mass_share", table.sharers)),
    ),
)
"""Thresholds are those of the alarms where there is one; others are places to start from, not findings."""


def warning(series: Series, threshold: float, patience: int = PATIENCE) -> int | None:
    """The step of the first warning: `patience` measurements in a row at the threshold or above; None without one.

    >>> warning({1: 0.2, 5: 0.9, 10: 0.9}, 0.9), warning({1: 0.9, 2: 0.1, 3: 0.9}, 0.9)
    (10, None)
    """
    run = 0
    for step, value in sorted(series.items()):
        run = run + 1 if value >= threshold else 0
        if run == patience:
            return step
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What recorded runs say of a sign. `leads`: steps from warning to fall, of the falls that were warned of before
    they were seen; `num_falls` and `num_quiet`: runs with and without a fall in which the sign was measured;
    `unmeasured`: those without its figures. Runs with too few validations are in none of them."""

    sign: str
    what: str
    threshold: float
    num_falls: int
    leads: tuple[int, ...]
    num_quiet: int
    num_false: int
    unmeasured: int = 0
    patience: int = field(default=PATIENCE)

    @property
    def hits(self) -> Estimate:
        """The share of falls that were warned of, with its 95 % interval (Wilson)."""
        return wilson(len(self.leads), self.num_falls)

    @property
    def false_alarms(self) -> Estimate:
        """The share of runs without a fall in which the sign warned all the same."""
        return wilson(self.num_false, self.num_quiet)

    @property
    def tells(self) -> bool:
        """Whether falls are warned of more often than runs without one, beyond the interval of the difference: a
        sign that always warns tells nothing."""
        hits, false = self.hits, self.false_alarms
        return hits.mean - false.mean > difference_width(hits.mean, hits.low, false.mean, false.high)

    @property
    def words(self) -> str:
        """What may be said of the sign; below `LEAST_FALLS` falls only the counts."""
        counts = (
            f"{self.sign} at {self.threshold:g} or above warned before {len(self.leads)} of {self.num_falls} falls"
            + (f", {_spread(self.leads)} before" if self.leads else "")
            + f", and in {self.num_false} of {self.num_quiet} runs without a fall"
        )
        if self.num_falls < LEAST_FALLS:
            falls = "1 fall" if self.num_falls == 1 else f"{self.num_falls} falls"
            return f"{counts}. It rests on {falls}: no claim below {LEAST_FALLS}"
        if not self.num_quiet:
            return f"{counts}. Without a run that did not fall its false alarms are not known: no claim"
        rates = f"hits {_percent(self.hits)}, false alarms {_percent(self.false_alarms)}"
        if self.tells:
            return f"{counts}. It tells runs that fall from others ({rates})"
        return f"{counts}. It does not tell runs that fall from others ({rates})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "sign": self.sign,
            "what": self.what,
            "threshold": self.threshold,
            "patience": self.patience,
            "falls": self.num_falls,
            "warned": len(self.leads),
            "lead_steps": list(self.leads),
            "runs_without_fall": self.num_quiet,
            "false_alarms": self.num_false,
            "unmeasured": self.unmeasured,
            "claim": self.num_falls >= LEAST_FALLS and self.num_quiet > 0,
            "words": self.words,
        }


def judge(
    tables: Sequence[Table],
    signs: Sequence[Sign] = SIGNS,
    thresholds: Mapping[str, float] | None = None,
    patience: int = PATIENCE,
) -> list[Record]:
    """The record of every sign over the runs. A warning in the step of the fall or after it comes too late to count;
    runs that do not have a sign's figures are left out of its record, and counted; those with too few validations to
    show a fall are left out of all records (`Table.watched`)."""
    chosen, watched = dict(thresholds or {}), [table for table in tables if table.watched]
    return [_judge(watched, sign, chosen.get(sign.name, sign.threshold), patience) for sign in signs]


def _judge(tables: Sequence[Table], sign: Sign, threshold: float, patience: int) -> Record:
    leads: list[int] = []
    falls = quiet = false = unmeasured = 0
    for table in tables:
        series = sign.read(table)
        if not series:
            unmeasured += 1
            continue
        warned = warning(series, threshold, patience)
        if table.fall is None:
            quiet += 1
            false += warned is not None
            continue
        falls += 1
        if warned is not None and warned < table.fall:
            leads.append(table.fall - warned)
    return Record(
        sign=sign.name,
        what=sign.what,
        threshold=threshold,
        num_falls=falls,
        leads=tuple(sorted(leads)),
        num_quiet=quiet,
        num_false=false,
        unmeasured=unmeasured,
        patience=patience,
    )


def _spread(leads: Sequence[int]) -> str:
    middle = f"a median of {median(leads):g} steps"
    return middle if len(leads) == 1 else f"{middle} ({leads[0]} to {leads[-1]})"


def _percent(one: Estimate) -> str:
    return f"{one.mean:.0%} [{one.low:.0%}, {one.high:.0%}]"
