"""Checks of single roles: one that never trains, that always says the same, that cannot be parsed, that copies."""

from __future__ import annotations

from collections.abc import Iterator

from rolecall.report.findings import Check, Finding
from rolecall.report.forest import direction
from rolecall.report.read import RunData, mapping
from rolecall.report.text import interval, listed, number, percent, plain

HIGH_UNPARSED = 0.05
HIGH_TRUNCATED = 0.05
ONE_SIDED = 0.95
FEW_SPREAD = 0.8
SMALL_MASS = 0.02
OPPOSED = -0.25
LATE = "in the last quarter of the steps"


def late(run: RunData, key: str) -> float | None:
    """The mean over the last quarter of the steps; None when the metric was not recorded."""
    values = run.series(key).tail()
    return sum(values) / len(values) if values else None


def mass(run: RunData) -> Iterator[Finding]:
    """A trained role whose advantages are all 0 does not learn; one with hardly any gradient is carried along."""
    alive = []
    for role in run.trained_roles:
        series = run.series(f"credit/{role}/advantage_mass")
        if not series:
            continue
        if not any(series.finite):
            yield Finding(
                level="bad",
                title=f"{role} never trains",
                text="Its advantage mass is 0 in every step: all its rewards are equal among peers. Look at its reward "
                "curve, its parse failures, and whether its turns can be judged at all.",
            )
        elif not any(series.tail()):
            yield Finding(
                level="look",
                title=f"{role} has stopped training",
                text="Its advantage mass is 0 in the last quarter of the steps: its peers all earn the same.",
            )
        else:
            alive.append(role)
    if alive:
        yield Finding(level="fine", title=f"Advantages differ from 0 for {listed(alive)}", text=LATE)


def gradient(run: RunData) -> Iterator[Finding]:
    """Shares of the gradient within one policy, and roles that pull against each other."""
    for role in run.trained_roles:
        share = late(run, f"dynamics/{role}/mass_share")
        credited = late(run, f"credit/{role}/advantage_mass")
        if share is not None and share < SMALL_MASS and credited:
            yield Finding(
                level="look",
                title=f"{role} has {percent(share)} of its policy's gradient",
                text="The other roles of the policy decide where the weights go. learner.role_weights changes that.",
            )
    roles = tuple(run.roles)
    for i, role in enumerate(roles):
        for other in roles[i + 1 :]:
            found = late(run, f"dynamics/{role}/cosine/{other}")
            if found is not None and found < OPPOSED:
                yield Finding(
                    level="look",
                    title=f"{role} and {other} pull against each other",
                    text=f"The cosine of their gradients is {plain(found)} in the last quarter; policies of their own "
                    "would part them.",
                )


def replies(run: RunData) -> Iterator[Finding]:
    """Replies that cannot be parsed or were cut off."""
    clean = []
    for role in run.roles:
        unparsed, truncated = (late(run, f"behaviour/{role}/{name}") for name in ("unparsed", "truncated"))
        if unparsed is not None and unparsed > HIGH_UNPARSED:
            yield Finding(
                level="bad" if unparsed > 0.5 else "look",
                title=f"{percent(unparsed)} of the replies of {role} cannot be parsed",
                text="In the last quarter of the steps. Read some below, beside the prompt that asks for the form.",
            )
        if truncated is not None and truncated > HIGH_TRUNCATED:
            yield Finding(
                level="bad" if truncated > 0.5 else "look",
                title=f"{percent(truncated)} of the replies of {role} are cut off",
                text="In the last quarter of the steps. Raise its max_tokens, or ask for shorter replies.",
            )
        if (unparsed or 0) <= HIGH_UNPARSED and (truncated or 0) <= HIGH_TRUNCATED and truncated is not None:
            clean.append(role)
    if clean:
        yield Finding(level="fine", title=f"Replies of {listed(clean)} are whole and parsed", text=LATE)


def verdicts(run: RunData) -> Iterator[Finding]:
    """A judge that says the same whatever it is shown."""
    for role in run.roles:
        says = late(run, f"behaviour/{role}/says_correct")
        if says is None:
            continue
        recall, alarms = (late(run, f"behaviour/{role}/{name}") for name in ("recall", "false_alarm"))
        figures = f"it finds {percent(recall)} of the errors and flags {percent(alarms)} of the right answers"
        if says > ONE_SIDED and (recall or 0) < 0.5:
            title = f"{role} agrees with everything"
        elif says < 1 - ONE_SIDED and (alarms or 0) > 0.5:
            title = f"{role} rejects everything"
        elif recall is not None and alarms is not None and recall - alarms < 0.1:
            title = f"{role} hardly tells right from wrong"
        else:
            yield Finding(level="fine", title=f"{role} tells right from wrong", text=figures)
            continue
        text = f"It says correct in {percent(says)} of its verdicts; {figures}, in the last quarter of the steps."
        yield Finding(level="look", title=title, text=text)


def repairs(run: RunData) -> Iterator[Finding]:
    """A corrector that hands back what it was given, or breaks what was right more often than it repairs."""
    for role in run.roles:
        copied, repaired, kept = (
            late(run, f"behaviour/{role}/{name}") for name in ("copied_input", "repaired", "kept_right")
        )
        if copied is not None and copied > 0.5:
            wrong, right = (_counted(run, role, name) for name in ("num_wrong_given", "num_right_given"))
            yield Finding(
                level="look",
                title=f"{role} copies {percent(copied)} of the answers it should repair",
                text=f"It repairs {percent(repaired)} of the {wrong}wrong ones and keeps {percent(kept)} of the "
                f"{right}right ones, in the last quarter of the steps.",
            )


def _counted(run: RunData, role: str, name: str) -> str:
    """How many there were in the last quarter of the steps, to stand before a noun; empty where it is not recorded."""
    counts = run.series(f"behaviour/{role}/{name}").tail()
    return f"{plain(sum(counts))} " if counts else ""


def spread(run: RunData) -> Iterator[Finding]:
    """Replies whose peers all earn the same teach nothing; roles that are hardly ever called."""
    num_steps = len(run.steps)
    for role in run.trained_roles:
        share = late(run, f"credit/{role}/zero_spread_share")
        if share is not None and share > FEW_SPREAD:
            yield Finding(
                level="look",
                title=f"{percent(share, 0)} of what {role} does is compared without a difference",
                text="A reply is paid by the difference to its peers, the other replies to the same prompt or task. In "
                "the last quarter of the steps these and all their peers earn the same, so they teach nothing: tasks "
                "are too easy or too hard by now, or too few episodes a task are compared.",
            )
        called = sum(value > 0 for value in run.series(f"behaviour/{role}/num_turns").finite)
        if num_steps and 2 * called < num_steps:
            title = f"{role} is called in {called} of {num_steps} steps"
            yield Finding(level="look", title=title, text="A role that hardly acts hardly learns.")


def fallen(run: RunData) -> Iterator[Finding]:
    """Roles whose own accuracy fell."""
    for role in run.roles:
        sides = [mapping(mapping(run.sampled(w).get("roles")).get(role)) for w in ("before", "after")]
        before, after = (mapping(side.get("accuracy")) for side in sides)
        if before and after and direction(before, after) == "down":
            text = f"{percent(before.get('mean'))} {interval(before)} before, {percent(after.get('mean'))} "
            more = "The inputs of a later role change when earlier ones learn." if number(after.get("n")) else ""
            title = f"{role} is right less often than before"
            yield Finding(level="look", title=title, text=f"{text}{interval(after)} after. {more}".strip())


ROLE_CHECKS: tuple[Check, ...] = (mass, gradient, replies, verdicts, repairs, spread, fallen)
