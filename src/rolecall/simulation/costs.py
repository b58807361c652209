"""What a simulated run costs, as strict typed models: `costs.toml` in, seconds and distributions out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from rolecall.config import Section, explain
from rolecall.errors import ConfigError, nearest
from rolecall.pipeline.schedule import MODES

KINDS: Mapping[str, tuple[str, ...]] = {
    "fixed": ("tokens",),
    "lognormal": ("median", "sigma"),
    "pareto": ("median", "sigma", "tail_share", "tail_index"),
    "recorded": ("run",),
}
MOST_TOKENS = 10**12


class CostSection(Section):
    """A table of costs: every number is finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class Lengths(CostSection):
    """How many tokens the completions of a role have, before the limit of the recipe (`max_tokens`) cuts them.

    `fixed`: `tokens`. `lognormal`: `median`, and `sigma` of the logarithm. `pareto`: the same, and above it a tail: the
    longest `tail_share` falls as a power, with `tail_index`. `recorded`: as the role's completions in the episodes of
    the run folder `run`.
    """

    kind: Literal["fixed", "lognormal", "pareto", "recorded"]
    tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    median: float | None = Field(default=None, gt=0)
    sigma: float | None = Field(default=None, ge=0)
    tail_share: float | None = Field(default=None, gt=0, lt=1)
    tail_index: float | None = Field(default=None, gt=0)
    run: str | None = None

    @model_validator(mode="after")
    def _reads(self) -> Lengths:
        wanted = KINDS[self.kind]
        for name in ("tokens", "median", "sigma", "tail_share", "tail_index", "run"):
            given = getattr(self, name) is not None
            if given != (name in wanted):
                what = f"does not read {name!r}; leave it out" if given else f"wants {name!r}"
                raise ValueError(f"kind = {self.kind!r} {what} (it reads {', '.join(wanted)})")
        return self


class RoleCosts(CostSection):
    """The calls of one role. `lengths`: one table, or a list of one for each call of the role on a path, the last one
    for those after it. `prompt_tokens`: of a call.

    A role that answers has `right`, the chance that its answer is right when there was none before or a wrong one, and
    `right_after_right`, when the one before was right. A role that judges has `recall`, the chance that it flags a
    wrong answer, and `false_alarms`, that it flags a right one; the path goes on where it flags, as in
    `solve_verify_correct`. An answer that reaches the limit has no text for the next role, and its path ends.
    """

    lengths: tuple[Lengths, ...]
    prompt_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    right: float | None = Field(default=None, ge=0, le=1)
    right_after_right: float = Field(default=1.0, ge=0, le=1)
    recall: float | None = Field(default=None, ge=0, le=1)
    false_alarms: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _list_of_lengths(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("lengths"), Mapping):
            return {**data, "lengths": [data["lengths"]]}
        return data

    @model_validator(mode="after")
    def _answers_or_judges(self) -> RoleCosts:
        if (self.right is None) == (self.recall is None):
            raise ValueError(
                "give `right`, the share of right answers, to a role that answers, or `recall`, the share of wrong "
                "answers that it flags, to a role that judges; one of the two"
            )
        if not self.lengths:
            raise ValueError("`lengths` is empty; wanted a table, or a list of one for each call")
        return self

    @property
    def judges(self) -> bool:
        return self.recall is not None

    def lengths_of(self, call: int) -> Lengths:
        return self.lengths[min(call, len(self.lengths) - 1)]


class EngineCosts(CostSection):
    """`count` engines alike, each with `slots` rows at a time. With r rows in its batch, one more token of each takes
    `token_s + token_row_s * r` seconds; `measured`, pairs of rows and seconds, replaces that (linear between them).

    A prompt takes `prompt_token_s` a token, in which the batch stands still. So does a completion that goes on after a
    segment: an engine keeps nothing of what it gave back, and reads prompt and tokens again. And so do all rows of an
    engine when weights come while they run (keys and values are computed anew), unless `recompute = false`. New weights
    take `load_s`.
    """

    count: int = Field(ge=1)
    slots: int = Field(ge=1)
    token_s: float = Field(default=0.0, ge=0)
    token_row_s: float = Field(default=0.0, ge=0)
    measured: tuple[tuple[int, float], ...] = ()
    prompt_token_s: float = Field(default=0.0, ge=0)
    load_s: float = Field(default=0.0, ge=0)
    recompute: bool = True

    @model_validator(mode="after")
    def _one_curve(self) -> EngineCosts:
        if self.measured and (self.token_s or self.token_row_s):
            raise ValueError("`measured` replaces token_s and token_row_s; keep one of them")
        rows = [pair[0] for pair in self.measured]
        if rows != sorted(set(rows)) or any(row < 1 or seconds < 0 for row, seconds in self.measured):
            raise ValueError("`measured` wants pairs of rows, 1 or more and increasing, and seconds of 0 or more")
        if self._seconds(self.slots) < 0:
            raise ValueError(
                f"`measured` falls to {self._seconds(self.slots):g} s with all {self.slots} slots taken, where its "
                "last two pairs are carried on in a line; add a pair for that many rows"
            )
        return self

    def seconds(self) -> list[float]:
        """Seconds for a token of every row, by the number of rows: index 0 to `slots`."""
        return [0.0] + [self._seconds(rows) for rows in range(1, self.slots + 1)]

    def _seconds(self, rows: int) -> float:
        if not self.measured:
            return self.token_s + self.token_row_s * rows
        if len(self.measured) == 1 or rows <= self.measured[0][0]:
            return self.measured[0][1]
        pairs = list(zip(self.measured, self.measured[1:], strict=False))
        (low, below), (high, above) = next((pair for pair in pairs if rows <= pair[1][0]), pairs[-1])
        return below + (above - below) * (rows - low) / (high - low)

    @property
    def best_token_s(self) -> float:
        """Seconds of one engine for one token, at the number of rows that is best."""
        return min(seconds / rows for rows, seconds in enumerate(self.seconds()) if rows)

    @property
    def quickest_token_s(self) -> float:
        """Seconds from one token of a row to the next, at the number of rows that is best for the row."""
        return min(self.seconds()[1:])


class LearnerCosts(CostSection):
    """`count` learners that share the rows of an update: seconds for a token of prompt or completion on one learner,
    and for an update and its publishing whatever their size. A row is not split, so that an update lasts at least as
    long as its longest one. With `skip_flat` groups whose rewards are all alike are not computed."""

    count: int = Field(default=1, ge=1)
    token_s: float = Field(ge=0)
    update_s: float = Field(default=0.0, ge=0)
    publish_s: float = Field(default=0.0, ge=0)
    skip_flat: bool = True


class GraderCosts(CostSection):
    """`count` graders; one takes the completions of a group one after the other."""

    count: int = Field(default=1, ge=1)
    completion_s: float = Field(default=0.0, ge=0)


class ScheduleCosts(CostSection):
    """Fields of `[schedule]` for one of the four schedules, where they differ from the recipe's."""

    segment_tokens: int | None = Field(default=None, ge=1)
    order: str | None = None
    max_rows: int | None = Field(default=None, ge=1)
    release: str | None = None
    max_staleness: int | None = Field(default=None, ge=0)
    on_stale: str | None = None
    update_rows: int | None = Field(default=None, ge=1)


class Costs(CostSection):
    """A whole `costs.toml`. Tasks are admitted for `steps` steps of the recipe's `tasks_per_step`, and all of their
    work is done. `path`: the roles of the calls on a path, where the workflow is not one that rolecall knows."""

    steps: int = Field(default=8, ge=1)
    seed: int = Field(default=0, ge=0)
    path: tuple[str, ...] | None = Field(default=None, min_length=1)
    engines: EngineCosts
    learners: LearnerCosts
    graders: GraderCosts = GraderCosts()
    roles: dict[str, RoleCosts]
    schedules: dict[str, ScheduleCosts] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_schedules(self) -> Costs:
        for name in self.schedules:
            if name not in MODES:
                raise ValueError(f"schedules.{name} is no schedule{nearest(name, MODES)}")
        return self


def load_costs(path: str | Path) -> Costs:
    """Read a costs file; `ConfigError` names what is wrong in it."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"costs file {str(path)!r} cannot be read ({error.strerror}); give a .toml file, as in recipes/costs"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"costs file {str(path)!r} is not TOML: {error}") from None
    return make_costs(data, source=str(path))


def make_costs(data: Mapping[str, Any], source: str = "costs") -> Costs:
    """Check costs given as a mapping."""
    try:
        return Costs.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(explain(item, Costs) for item in error.errors())) from None
