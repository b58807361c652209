"""Alarms of roles together: copies that push one way, a role that takes a policy over, outputs that grow alike."""

from __future__ import annotations

from collections.abc import Iterator

from rolecall.dynamics.alarms import Rule, Scene, Signal

DOMINANT = 0.95
"""Cosine with the policy's gradient from which a role decides where it goes."""


def copies_aligned(scene: Scene) -> Iterator[Signal]:
    """The gradients of a role's copies have nearly one direction, so that they add up to N times that of one."""
    for role, found in scene.by_role("dynamics", "amplification"):
        area = f"dynamics/{role}"
        copies = scene.now[f"{area}/copies"]
        yield Signal(
            key="copies_aligned",
            subject=role,
            off=found >= scene.settings.aligned * copies,
            well=found < (scene.settings.aligned - 0.1) * copies,
            seen=f"the gradients of its {copies:g} copies add up to {found:.2f} times one "
            f"(dealt at random: {scene.now[f'{area}/amplification_control']:.2f}), "
            f"in a batch of {scene.now[f'{area}/copy_units']:g}",
            usual=f"about {copies**0.5:.2f} for noise, and more the larger the batch",
            move="nothing but its learning rate holds the role back: see whether its kl_base or total_update_norm runs "
            'ahead; average the copies, lower its learner.lr, or set optimizer_steps = "one" for its policy',
            patience=2,
        )


def mass_captured(scene: Scene) -> Iterator[Signal]:
    """One role takes the gradient of a policy that several roles share."""
    for policy, shares in scene.by_sharers("mass_share"):
        first = max(shares, key=lambda role: shares[role])
        yield Signal(
            key="mass_captured",
            subject=policy,
            off=shares[first] >= scene.settings.captured,
            well=shares[first] < scene.settings.captured - 0.1,
            seen=f"{first!r} holds {shares[first]:.0%} of the gradient mass of {len(shares)} roles",
            usual=f"about {1 / len(shares):.0%} each, less where a role has little left to learn",
            move="look at the other roles' zero_spread_share; balance by role weights, or give the role its own policy",
        )


def direction_captured(scene: Scene) -> Iterator[Signal]:
    """A shared policy goes where one role's gradient points, and against or past all others."""
    for policy, cosines in scene.by_sharers("cosine_total"):
        first = max(cosines, key=lambda role: cosines[role])
        others = [cosine for role, cosine in cosines.items() if role != first]
        yield Signal(
            key="direction_captured",
            subject=policy,
            off=cosines[first] >= DOMINANT and max(others) <= 0.0,
            well=cosines[first] < DOMINANT - 0.05 or max(others) > 0.05,
            seen=f"its gradient goes the way of {first!r} (cosine {cosines[first]:.2f}), past or against the others "
            f"(at most {max(others):.2f})",
            usual="above 0 for every role",
            move="the others get worse to first order: balance the roles' weights or mass, or give it its own policy",
        )


def chi2_high(scene: Scene) -> Iterator[Signal]:
    """A role's tokens are far from the policy that sampled them."""
    for role, found in scene.by_role("dynamics", "chi2"):
        yield Signal(
            key="chi2_high",
            subject=role,
            off=found > scene.settings.chi2,
            well=found < 0.5 * scene.settings.chi2,
            seen=f"chi-squared of {found:.3g} a token against the policy that sampled",
            usual=f"under {scene.settings.chi2:g}",
            move="few tokens carry the estimate: fewer optimizer steps on a batch, fresher samples (stale_share), or a "
            "correction (loss.correction); without either, see mismatch",
            patience=2,
        )


def role_leaks(scene: Scene) -> Iterator[Signal]:
    """A role no longer speaks as it did at the start, and is taken for another."""
    for role, lost in scene.by_role("behaviour", "told_apart_lost"):
        taken = {
            key.rsplit("/", 1)[1]: value
            for key, value in scene.now.items()
            if key.startswith(f"behaviour/{role}/taken_for/")
        }
        other = max(taken, key=lambda name: taken[name], default="")
        yield Signal(
            key="role_leaks",
            subject=role,
            off=lost >= scene.settings.leaked,
            well=lost < 0.5 * scene.settings.leaked,
            seen=f"of its turns {lost:.0%} fewer than at the start are known for its own; "
            f"{taken.get(other, 0.0):.0%} are taken for {other!r}",
            usual=f"within {scene.settings.leaked:.0%} of the start",
            move="read a few of its replies beside the other's; a policy of its own, balanced masses or a KL to the "
            "base keep roles apart",
        )


def format_confused(scene: Scene) -> Iterator[Signal]:
    """A role speaks in another role's format instead of its own."""
    for role, share in scene.by_role("behaviour", "confused"):
        yield Signal(
            key="format_confused",
            subject=role,
            off=share >= scene.settings.confused,
            well=share < 0.5 * scene.settings.confused,
            seen=f"{share:.0%} of its turns are in another role's format and not in its own",
            usual="a few percent",
            move=f"see behaviour/{role}/format/<other> for whose; reward the format, or give the role its own policy",
            patience=3,
        )


def identical_plans(scene: Scene) -> Iterator[Signal]:
    """A planning role gives all copies the same work, or every task the same plan."""
    for role, different in scene.by_role("behaviour", "different_plans"):
        repeated = scene.now.get(f"behaviour/{role}/repeated", 0.0)
        bound = scene.settings.same_plans
        yield Signal(
            key="identical_plans",
            subject=role,
            off=different <= 1.0 - bound or repeated >= bound,
            well=different > 1.2 - bound and repeated < bound - 0.1,
            seen=f"{1.0 - different:.0%} of what it plans is the same for all copies, and {repeated:.0%} of its plans "
            "are word for word those of another task",
            usual="plans that differ between copies and between tasks",
            move="copies of one plan are votes, not strategies: reward plans whose workers differ and are right, raise "
            "the role's temperature, or train its copies less",
        )


def copies_input(scene: Scene) -> Iterator[Signal]:
    """A correcting role hands back the wrong answers that it is given."""
    settings = scene.settings
    for role in scene.roles:
        given, copied = pooled(scene, role, "num_wrong_given", "num_copied_wrong", settings.wrong_given)
        if given < settings.wrong_given:
            continue
        rate = copied / given
        yield Signal(
            key="copies_input",
            subject=role,
            off=rate >= settings.copied,
            well=rate < settings.copied - 0.1,
            seen=f"it handed back {rate:.0%} of the last {given:g} wrong answers it was given",
            usual=f"well under {settings.copied:.0%}",
            move="see its repaired and kept_right: where most of what it is given is right, copying pays; reward "
            "repairs (a reward of its own), or call it on rejected answers only",
        )


def pooled(scene: Scene, role: str, of: str, part: str, least: int) -> tuple[float, float]:
    """How many there were, and how many of them were so, over as many of the last steps as hold `least`."""
    keys = [f"behaviour/{role}/{name}" for name in (of, part)]
    if any(key not in scene.now for key in keys):
        return 0.0, 0.0
    all_of, some = 0.0, 0.0
    past = [(*scene.past.get(key, ()), scene.now[key]) for key in keys]
    for number, so in zip(*map(reversed, past), strict=False):  # from this step back
        all_of, some = all_of + number, some + so
        if all_of >= least:
            break
    return all_of, some


TEAM_RULES: tuple[Rule, ...] = (
    copies_aligned,
    mass_captured,
    direction_captured,
    chi2_high,
    role_leaks,
    format_confused,
    identical_plans,
    copies_input,
)
