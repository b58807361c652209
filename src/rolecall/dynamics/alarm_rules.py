"""The rules behind the alarms: each looks at one trouble, and says it in words with the numbers in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from rolecall.dynamics.alarms import Metrics, Rule, Scene, Signal
from rolecall.dynamics.team_rules import TEAM_RULES, pooled
from rolecall.intervals import difference_width

LEAST_PAST = 3
"""Values that must have been seen before one counts as unusual."""


def never_trains(scene: Scene) -> Iterator[Signal]:
    """A role without units, advantages or gradient. Rewards that are all 0 have a rule of their own."""
    for role, policy in scene.roles.items():
        units = scene.now.get(f"credit/{role}/units", 0.0)
        mass = scene.now.get(f"credit/{role}/advantage_mass", 0.0)
        norm = scene.now.get(f"dynamics/{role}/grad_norm")
        silent = _rewards_are_zero(scene.now, role)
        if not scene.now.get(f"behaviour/{role}/num_turns"):
            seen, move = "it was never called", "look at the workflow and at the roles that decide whether it is called"
        elif not units:
            seen = "its turns made no credit unit"
            move = "read reward/<role>/ungraded and /unjudged: turns without a reward are not trained"
        elif mass == 0.0:
            flat = scene.now.get(f"credit/{role}/zero_spread_share", 0.0)
            alone = scene.now.get(f"credit/{role}/alone", 0.0)
            seen = f"all its advantages are 0 ({flat:.0%} of peers without spread, {alone:g} of {units:g} units alone)"
            move = "more episodes a task, other tasks, or a reward that tells its replies apart"
        else:
            seen = f"it has advantages, and no gradient came of them (policy {policy!r})"
            move = "read learner/<policy>/skipped_* and learner.role_weights"
        idle = mass == 0.0 or norm == 0.0
        yield Signal(
            key="never_trains",
            subject=role,
            off=idle and not silent,
            well=not idle,
            seen=f"for {scene.settings.patience} steps {seen}",
            usual="a gradient in nearly every step",
            move=move,
        )


def rewards_zero(scene: Scene) -> Iterator[Signal]:
    """Every reward of a role is 0, or could not be given; the cause is named by what its turns are marked with."""
    for role in scene.roles:
        if not scene.now.get(f"behaviour/{role}/num_turns"):
            continue
        zero = _rewards_are_zero(scene.now, role)
        cause, move = _cause(scene.now, role)
        yield Signal(
            key="rewards_zero",
            subject=role,
            off=zero,
            well=not zero,
            seen=f"every reward is 0 or missing; cause: {cause}",
            usual="rewards above 0 in some episodes of most tasks",
            move=move,
            patience=3,
        )


def verdicts_stuck(scene: Scene) -> Iterator[Signal]:
    """A judging role that always says the same, while what it judges is sometimes right and sometimes wrong."""
    settings = scene.settings
    moves = {"says_correct": ("always_agrees", "recall"), "says_wrong": ("always_rejects", "false_alarm")}
    for role in scene.roles:
        right = scene.now.get(f"behaviour/{role}/judged_right")
        for name, (key, other) in moves.items():
            share = scene.now.get(f"behaviour/{role}/{name}")
            if share is None or right is None:
                continue
            yield Signal(
                key=key,
                subject=role,
                off=_says_only(scene, role, name),
                well=share < settings.agree - 0.05,
                seen=f"{name} {share:.0%} while {right:.0%} of what it judged was right",
                usual=f"says_correct near {right:.0%}",
                move=f"see {other} and reward/{role}/correct: a constant verdict must earn less than a true one; "
                "compare verdicts among peers of the same truth",
            )


def cries_wolf(scene: Scene) -> Iterator[Signal]:
    """A judging role that calls right answers wrong, however few of them it is given: they are counted over as many of
    the last steps as hold enough. Where it says nothing else at all, `verdicts_stuck` speaks."""
    settings = scene.settings
    for role in scene.roles:
        right, alarms = pooled(scene, role, "num_right_judged", "num_false_alarms", settings.right_judged)
        if right < settings.right_judged:
            continue
        rate, shown = alarms / right, scene.now.get(f"behaviour/{role}/judged_right", 0.0)
        yield Signal(
            key="cries_wolf",
            subject=role,
            off=rate >= settings.false_alarm and not _says_only(scene, role, "says_wrong"),
            well=rate < 0.8 * settings.false_alarm,
            seen=f"it called {rate:.0%} of the last {right:g} right answers it judged wrong",
            usual=f"well under {settings.false_alarm:.0%}",
            move=f"{shown:.0%} of what it judges is right, and an adaptive pick feeds it mostly wrong answers, so that "
            "calling everything wrong pays: set algorithm.balance_verdicts = true, or pick balanced "
            '(algorithm.pick = "balanced")',
        )


def entropy_collapse(scene: Scene) -> Iterator[Signal]:
    """Next to nothing is left of the entropy that a role started with."""
    for role, start in scene.start.items():
        entropy = scene.now.get(f"dynamics/{role}/entropy")
        if entropy is None or start <= 0.0:
            continue
        left = entropy / start
        yield Signal(
            key="entropy_collapse",
            subject=role,
            off=left < scene.settings.entropy_left,
            well=left > 2.0 * scene.settings.entropy_left,
            seen=f"entropy {entropy:.4g} nats a token, {left:.1%} of the {start:.3g} of the first steps",
            usual=f"more than {scene.settings.entropy_left:.0%} of it",
            move="no exploration is left: lower learner.lr, add an entropy bonus or a KL, or stop at the best "
            "checkpoint",
        )


def gradient_explodes(scene: Scene) -> Iterator[Signal]:
    """A gradient norm far above what is usual for the policy, or one that is not finite."""
    for policy in scene.policies():
        key = f"learner/{policy}/grad_norm"
        norm, past = scene.now.get(key), scene.past.get(key, ())
        broken = scene.now.get(f"learner/{policy}/skipped_nonfinite", 0.0)
        usual = median(past) if len(past) >= LEAST_PAST else math.inf
        large = norm is not None and norm > scene.settings.norm_jump * usual
        words = f"{broken:g} optimizer steps were skipped, not finite" if broken else f"gradient norm {norm or 0.0:.3g}"
        yield Signal(
            key="gradient_explodes",
            subject=policy,
            off=large or broken > 0,
            well=norm is not None and norm < 0.3 * scene.settings.norm_jump * usual and not broken,
            seen=words,
            usual=f"{usual:.3g}" if math.isfinite(usual) else "finite",
            move="see dynamics/<role>/grad_norm for whose it is, and that role's rewards and lengths; lower learner.lr "
            "or learner.max_grad_norm",
            patience=1,
        )


def kl_jump(scene: Scene) -> Iterator[Signal]:
    """One update moved a role's distribution far more than updates usually do."""
    for role in scene.roles:
        key = f"dynamics/{role}/kl_last"
        kl, past = scene.now.get(key), scene.past.get(key, ())
        if kl is None or len(past) < LEAST_PAST:
            continue
        bound = max(scene.settings.kl_jump * median(past), scene.settings.kl_floor)
        yield Signal(
            key="kl_jump",
            subject=role,
            off=kl > bound,
            well=kl < 0.5 * bound,
            seen=f"the last update moved it by {kl:.3g} nats a token",
            usual=f"{median(past):.3g}",
            move="lower learner.lr or learner.max_grad_norm; a KL to the last version in the loss bounds it",
            patience=1,
        )


def mismatch(scene: Scene) -> Iterator[Signal]:
    """Engine and learner disagree about the probability of what was sampled."""
    for policy, gap in scene.by_policy("mismatch"):
        coarse = policy in scene.coarse
        bound = scene.settings.mismatch_bfloat16 if coarse else scene.settings.mismatch
        yield Signal(
            key="mismatch",
            subject=policy,
            off=gap > bound,
            well=gap < 0.5 * bound,
            seen=f"log-probabilities of engine and learner differ by {gap:.3g} nats a token on average",
            usual=f"under {bound:g}",
            move="the engine may sample other weights, another temperature or truncated support: see parity/<policy>; "
            "until then ratios and advantages are those of another policy",
            patience=1,
        )


def clip_high(scene: Scene) -> Iterator[Signal]:
    """Much of a role's gradient is clipped away."""
    for role, share in scene.by_role("dynamics", "clip_fraction"):
        yield Signal(
            key="clip_high",
            subject=role,
            off=share > scene.settings.clipped,
            well=share < 0.7 * scene.settings.clipped,
            seen=f"{share:.0%} of its tokens are clipped",
            usual="a few percent",
            move="lower learner.lr, fewer minibatches, or fresher samples (stale_share, mismatch)",
        )


def much_lost(scene: Scene) -> Iterator[Signal]:
    """Many turns of a role are cut off or cannot be parsed, though some still earn a reward."""
    for role in scene.roles:
        moves = {
            "truncated": (scene.settings.truncated, "raise max_tokens of the role, or ask for shorter replies"),
            "unparsed": (scene.settings.unparsed, "read a few of its replies with the prompt, and the parser"),
        }
        for name, (bound, move) in moves.items():
            share = scene.now.get(f"behaviour/{role}/{name}")
            if share is None:
                continue
            yield Signal(
                key=f"much_{name}",
                subject=role,
                off=share >= bound and not _rewards_are_zero(scene.now, role),
                well=share < 0.7 * bound,
                seen=f"{share:.0%} of its turns are {name}",
                usual="a few percent",
                move=move,
            )


def update_lost(scene: Scene) -> Iterator[Signal]:
    """There is a gradient, and few weights move: in plain bfloat16 small updates are rounded away."""
    for policy, moved in scene.by_policy("moved_share"):
        yield Signal(
            key="update_lost",
            subject=policy,
            off=moved < scene.settings.moved,
            well=moved > 2.0 * scene.settings.moved,
            seen=f"{moved:.1%} of the weights with a gradient changed",
            usual="nearly all of them",
            move='set learner.precision to "bfloat16" or "float32", or raise learner.lr',
            patience=2,
        )


def validation_fell(scene: Scene) -> Iterator[Signal]:
    """Validation fell from its peak by more than the interval of the difference."""
    now, high = scene.now.get("validation/team"), scene.now.get("validation/team_high")
    if now is None or high is None or not scene.peak:
        return
    peak, low = scene.peak["mean"], scene.peak["low"]
    fall, width = peak - now, difference_width(peak, low, now, high)
    yield Signal(
        key="validation_fell",
        subject="team",
        off=fall > width,
        well=fall < 0.5 * width,
        seen=f"validation {now:.3f}, {fall:.3f} below its peak of {peak:.3f}",
        usual=f"within {width:.3f} of it",
        move="training past its peak: stop at the best checkpoint, lower learner.lr, and see which role's entropy, "
        "kl_base or mass_share moved first",
        patience=1,
    )


def cliff(scene: Scene) -> Iterator[Signal]:
    """The smoothed validation fell from its peak, or below where training began, by more than its interval: the figures
    of `dynamics/cliff.py`."""
    fallen, last = scene.now.get("cliff/fallen"), scene.now.get("cliff/last")
    if fallen is None or last is None:
        return
    peak, width = scene.now["cliff/peak"], scene.now["cliff/interval"]
    yield Signal(
        key="cliff",
        subject="team",
        off=fallen > 0.0,
        well=not fallen and peak - last < 0.5 * width,
        seen=f"the mean of the last two validations is {last:.3f}; the peak was {peak:.3f} at step "
        f"{scene.now['cliff/peak_step']:g}",
        usual=f"within {width:.3f} of the peak, and not below where training began",
        move='the best checkpoint is kept: stop there (evaluation.on_cliff = "stop"), go back to it ("rollback"), or '
        "see which role's kl_base, entropy, amplification or mass_share moved first, and docs/interventions.md",
        patience=1,
    )


def _says_only(scene: Scene, role: str, name: str) -> bool:
    """Whether nearly all verdicts of a role are the one that `name` counts, while the truth is mixed."""
    share, right = scene.now.get(f"behaviour/{role}/{name}"), scene.now.get(f"behaviour/{role}/judged_right")
    if share is None or right is None:
        return False
    mixed = scene.settings.mixed <= right <= 1.0 - scene.settings.mixed
    return mixed and share >= scene.settings.agree


def _rewards_are_zero(metrics: Metrics, role: str) -> bool:
    """Whether a role that was called earned nothing at all: rewards that cancel out leave advantages."""
    total = metrics.get(f"reward/{role}/total", 0.0)
    mass = metrics.get(f"credit/{role}/advantage_mass", 0.0)
    return bool(metrics.get(f"behaviour/{role}/num_turns")) and total == 0.0 and mass == 0.0


def _cause(metrics: Metrics, role: str) -> tuple[str, str]:
    """What most turns of the role are marked with, and what to do about it."""
    causes = (
        ("ungraded", "grader", "the grader fails: its words are in the grades of the episodes; run it by hand on one"),
        ("truncated", "truncation", "raise max_tokens of the role, or ask for shorter replies"),
        ("unparsed", "parser", "read a few replies with their prompt, and the parser of the workflow"),
        ("failed", "failed episodes", "read the failures of the episodes: workflow, engine or deadline"),
        ("unjudged", "nothing to judge", "its turns claim nothing checkable; reward it by the team's outcome"),
    )
    for mark, name, move in causes:
        shares = [metrics.get(f"{area}/{role}/{mark}", 0.0) for area in ("reward", "behaviour")]
        if max(shares) >= 0.5:
            return f"{name} ({max(shares):.0%} of its turns are {mark})", move
    return (
        "zero spread (all were parsed and graded, and all earned 0)",
        "the tasks are too hard for the policy, or the grader expects another form: grade a right answer by hand",
    )


RULES: tuple[Rule, ...] = (
    rewards_zero,
    never_trains,
    verdicts_stuck,
    cries_wolf,
    entropy_collapse,
    gradient_explodes,
    kl_jump,
    mismatch,
    clip_high,
    much_lost,
    update_lost,
    validation_fell,
    cliff,
    *TEAM_RULES,
)
"""All rules, in the order in which their alarms are told."""
