"""What a reader should know first, in words: checks of the whole run. Those of single roles are in `role_findings`.

Each check is a function from a run to findings; a check that finds nothing wrong says what it looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rolecall.intervals import difference_width
from rolecall.report.forest import direction
from rolecall.report.read import RunData, mapping
from rolecall.report.text import interval, number, percent, plain, points, words

Level = Literal["bad", "look", "note", "fine"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence or two: `title` says what, `text` the numbers and the next move."""

    level: Level
    title: str
    text: str = ""


Check = Callable[[RunData], Iterator[Finding]]


def accuracy(run: RunData) -> Iterator[Finding]:
    """Whether the intervals before and after meet."""
    before, after = mapping(run.sampled("before").get("team")), mapping(run.sampled("after").get("team"))
    if not before or not after:
        return
    both = (
        f"{percent(before.get('mean'))} {interval(before)} before, {percent(after.get('mean'))} {interval(after)} after"
    )
    found = direction(before, after)
    if found == "up":
        yield Finding(level="fine", title="Accuracy rose, and the intervals do not meet", text=both)
    elif found == "down":
        yield Finding(level="bad", title="The team got worse", text=f"{both}. Look at where validation fell, below.")
    else:
        yield Finding(
            level="look",
            title="Accuracy intervals before and after overlap",
            text=f"{both}. This run does not show that the team learned: train longer, or test on more tasks.",
        )


def cliff(run: RunData) -> Iterator[Finding]:
    """Whether validation fell after its peak by more than the interval of the difference, as the alarm
    `validation_fell` asks."""
    means = run.series("validation/team")
    low, high = run.series("validation/team_low"), run.series("validation/team_high")
    if len(means.finite) < 2:
        return
    lows = dict(zip(low.steps, low.values, strict=True))
    highs = dict(zip(high.steps, high.values, strict=True))
    peak_step, peak = max(
        ((s, v) for s, v in zip(means.steps, means.values, strict=True) if math.isfinite(v)), key=lambda pair: pair[1]
    )
    last_step, last = means.steps[-1], means.values[-1]
    text = f"{percent(peak)} at step {peak_step}, {percent(last)} at step {last_step}"
    width = difference_width(peak, lows.get(peak_step, math.nan), last, highs.get(last_step, math.nan))
    if peak - last > width:
        yield Finding(
            level="bad",
            title="Validation fell after its peak",
            text=f"{text}: {100 * (peak - last):.1f} points, of which {100 * width:.1f} may be chance. The best "
            f"checkpoint is that of step {peak_step}; look at gradient mass and cosines around that step.",
        )
    elif not math.isfinite(last):
        yield Finding(level="bad", title="The last validation is not a number", text=text)
    else:
        yield Finding(
            level="fine", title="Validation did not fall from its peak by more than chance explains", text=text
        )


def guard(run: RunData) -> Iterator[Finding]:
    """What the cliff guard did, in the figures of the summary."""
    found = mapping(run.summary.get("cliff"))
    now = f"the mean of the last two validations is {percent(found.get('last'))}" if found else ""
    text = f"{now}, the peak was {percent(found.get('peak'))} at step {found.get('peak_step')}" if found else ""
    for rollback in found.get("rollbacks") or ():
        yield Finding(
            level="look",
            title=f"Rolled back from step {rollback['step']} to step {rollback['to']}",
            text="Validation had fallen; weights and optimiser were put back, and the learning rate was lowered.",
        )
    if found.get("stopped"):
        yield Finding(
            level="look",
            title="The cliff guard stopped the run",
            text=f"{text}. The result is the best step. Look at what moved before the fall; docs/interventions.md.",
        )
    elif found.get("cliff"):
        if found.get("fell"):
            title = "The run ends on a cliff"
        else:
            title, text = "The run ends below where it began", f"{now}; before training {percent(found.get('base'))}"
        yield Finding(level="look", title=title, text=f"{text}. The best checkpoint is kept, and is the result.")


def start(run: RunData) -> Iterator[Finding]:
    """Whether training found anything better than where it started."""
    if run.finished and run.summary.get("best_step") == 0 and run.steps and run.steps[-1] > 0:
        yield Finding(
            level="look",
            title="The weights before training were the best",
            text="No validation of a later step was as good, so the test set after training is measured with the "
            "weights before it. Lower learner.lr, or see which role's reward and accuracy fell first.",
        )


def margin(run: RunData) -> Iterator[Finding]:
    """Whether the team is better than its first answer."""
    found = mapping(run.sampled("after").get("margin"))
    if not found or len(run.roles) < 2:
        return
    text = f"team minus first answer: {points(found.get('mean'))} points, {interval(found)}"
    if number(found.get("high")) < 0:
        yield Finding(
            level="bad",
            title="The later roles make answers worse",
            text=f"{text}. Look at how often right answers are flagged and then not kept.",
        )
    elif number(found.get("low")) > 0:
        yield Finding(level="fine", title="The team beats its own first answer", text=text)
    else:
        yield Finding(level="look", title="The later roles add nothing that is certain", text=f"{text} includes 0.")


def parity(run: RunData) -> Iterator[Finding]:
    """How far the log-probabilities of engine and learner are apart."""
    series = [run.series(f"parity/{policy}/max_abs_diff") for policy in run.policies]
    values = [value for one in series for value in one.finite]
    values += [v for v in [number(mapping(run.summary.get("parity")).get("max_abs_diff"))] if math.isfinite(v)]
    if not values:
        return
    worst = max(values)
    text = f"log-probabilities of engine and learner differ by at most {plain(worst)}"
    dtypes = {run.policy_config(policy).get("dtype", "float32") for policy in run.policies}
    bound = 1e-3 if dtypes <= {"float32"} else 0.1
    if worst > bound:
        yield Finding(
            level="bad",
            title="Engine and learner disagree",
            text=f"{text}; wanted at most {plain(bound)}. What was sampled is not what was trained.",
        )
    else:
        yield Finding(level="fine", title="The engine sampled from the trained weights", text=text)


def episodes(run: RunData) -> Iterator[Finding]:
    """How many episodes ended without a valid answer, and how often graders failed."""
    started = sum(run.series("episodes/started").finite)
    if not started:
        return
    counts = {kind: sum(run.series(f"episodes/{kind}").finite) for kind in ("invalid", "error", "timeout")}
    failed = sum(counts.values())
    parts = ", ".join(f"{plain(count)} {kind}" for kind, count in counts.items() if count)
    if failed / started > 0.01:
        yield Finding(
            level="look" if failed / started < 0.1 else "bad",
            title=f"{percent(failed / started)} of the episodes failed",
            text=f"{parts}, of {plain(started)} started. Their failures are in the episodes files.",
        )
    else:
        text = f"{plain(failed)} of {plain(started)} failed"
        yield Finding(level="fine", title="Episodes came to an end", text=text + (f" ({parts})" if parts else ""))
    ungraded = sum(run.series("grading/failed").finite)
    if ungraded:
        yield Finding(
            level="look",
            title=f"Graders failed on {plain(ungraded)} episodes",
            text="These give no reward and are left out of every rate; they are never a 0.",
        )


def numbers(run: RunData) -> Iterator[Finding]:
    """Steps that were skipped, values that are not finite."""
    skipped: dict[str, float] = {}
    for kind in ("nonfinite", "oom"):
        for policy in run.policies:
            skipped[kind] = skipped.get(kind, 0) + sum(run.series(f"learner/{policy}/skipped_{kind}").finite)
    if skipped.get("nonfinite"):
        text = "The loss or gradient was not finite; lower learner.lr, or look at the episodes of these steps."
        yield Finding(level="bad", title=f"{plain(skipped['nonfinite'])} updates were skipped", text=text)
    if skipped.get("oom"):
        text = "The learner ran out of memory; lower learner.microbatch_tokens."
        yield Finding(level="bad", title=f"{plain(skipped['oom'])} updates were skipped", text=text)
    if run.num_not_finite:
        bad = [key for key, series in run.metrics.items() if len(series.finite) < len(series.values)]
        shown = ", ".join(sorted(bad)[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
        title = f"{run.num_not_finite} metric values are not finite"
        yield Finding(level="look", title=title, text=f"In {shown}; curves have gaps there.")
    if run.metrics and not any(skipped.values()) and not run.num_not_finite:
        yield Finding(level="fine", title="Every loss, gradient and metric is finite", text="no update was skipped")


def entropy(run: RunData) -> Iterator[Finding]:
    """Whether a policy stopped exploring."""
    for policy in run.policies:
        series = run.series(f"learner/{policy}/entropy")
        if len(series.finite) < 8:
            continue
        first, last = series.finite[0], sum(series.tail(0.1)) / len(series.tail(0.1))
        text = f"{plain(first)} at the start, {plain(last)} at the end, in nats a token"
        if first > 0 and last < 0.05 * first:
            yield Finding(
                level="look",
                title=f"Entropy of policy {policy} collapsed",
                text=f"{text}. Replies to one prompt hardly differ, so little can be compared; raise the temperature, "
                "or stop earlier.",
            )
        else:
            yield Finding(level="fine", title=f"Policy {policy} still explores", text=f"entropy {text}")


def alarms(run: RunData) -> Iterator[Finding]:
    """Alarms that the dynamics raised while the run went on, in the words that the run printed."""
    for alarm in run.alarms:
        series = run.series(f"alarms/{alarm['key']}")
        stood = [step for step, value in zip(series.steps, series.values, strict=True) if value > 0]
        ends = f"stood last in step {stood[-1]}" if stood and stood[-1] < run.steps[-1] else "still stands"
        title = f"Alarm in step {alarm['step']}: {words(str(alarm['key']))}"
        yield Finding(level="look", title=title, text=f"{alarm['text']} ({alarm['key']} {ends}.)")


def files(run: RunData) -> Iterator[Finding]:
    """Files that could not be read, steps without metrics, and a run that has not come to its end."""
    for problem in run.problems:
        yield Finding(level="look", title="A file of the run is left out", text=problem)
    steps = run.steps
    if steps and len(steps) < steps[-1] - steps[0] + 1:
        missing = steps[-1] - steps[0] + 1 - len(steps)
        text = f"{missing} between step {steps[0]} and step {steps[-1]}; curves run straight across them."
        yield Finding(level="look", title="Steps without metrics", text=text)
    if not run.finished:
        at = f"Step {steps[-1]} of {run.config.get('steps', '?')}" if steps else "No step yet"
        text = f"{at}: the folder has no summary.json. It is still being written, or was ended; this page shows what "
        yield Finding(level="note", title="The run has not come to its end", text=text + "is there.")


RUN_CHECKS: tuple[Check, ...] = (
    files,
    accuracy,
    start,
    cliff,
    guard,
    margin,
    alarms,
    numbers,
    episodes,
    entropy,
    parity,
)
