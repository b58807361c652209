"""Which metrics the page draws for every role and policy, under which name, and how to read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A metric of every role (or policy): where it is stored, its name, and how to read it. A curve that never leaves
    `quiet` is not drawn but named below the charts. `counted`: the metric that says of how many it is a rate."""

    key: str
    title: str
    axis: str
    kind: str = "number"
    note: str = ""
    quiet: float = 0.0
    counted: str = ""


OF_POLICY, WITH_ALL = "of the policy", "cosine with all"
WITHIN_POLICY = (OF_POLICY, WITH_ALL)

LEARNING = (
    Curve(
        key="reward/{}/total",
        title="Reward",
        axis="mean reward",
        kind="rate",
        note="Mean over the turns of a role, on training tasks.",
    ),
    Curve(
        key="behaviour/{}/accuracy",
        title="Accuracy of what is claimed",
        axis="right",
        kind="rate",
        note="Answers that are right, verdicts that are true.",
    ),
    Curve(
        key="credit/{}/zero_spread_share",
        title="Compared without a difference",
        axis="of the units",
        kind="rate",
        note="Replies whose peers (those they are compared with) all earn the same teach nothing: too easy, too hard, "
        "or too few.",
    ),
)
GRADIENTS = (
    Curve(
        key="dynamics/{}/mass_share",
        title="Share of gradient mass",
        axis=OF_POLICY,
        kind="rate",
        note="A role's gradient norm over the sum of norms in its policy.",
    ),
    Curve(
        key="dynamics/{}/cosine_total",
        title="Cosine with the whole gradient",
        axis=WITH_ALL,
        kind="cosine",
        note="Near 1: this role decides where the policy goes. Below 0: it goes against this role.",
    ),
    Curve(key="dynamics/{}/grad_norm", title="Gradient norm", axis="norm", note="Before clipping."),
    Curve(
        key="credit/{}/advantage_mass_share",
        title="Share of advantage mass",
        axis="of all roles",
        kind="rate",
        note="Sum of |advantage| over the turns of a role.",
    ),
    Curve(
        key="dynamics/{}/token_share",
        title="Share of trained tokens",
        axis=OF_POLICY,
        kind="rate",
        note="Long replies weigh more in a mean over tokens.",
    ),
    Curve(
        key="dynamics/{}/cosine_update",
        title="Cosine with the update",
        axis="cosine",
        kind="cosine",
        note="Of the role's own gradient with the step that the optimiser made.",
    ),
    Curve(
        key="dynamics/{}/push",
        title="Effective push",
        axis="length in weights",
        note="How far the weights went along the role's own direction.",
    ),
    Curve(
        key="dynamics/{}/persistence",
        title="Persistence",
        axis="cosine",
        kind="cosine",
        note="Cosine with the role's own running mean: near 0 is noise.",
    ),
    Curve(
        key="dynamics/{}/amplification",
        title="Amplification of copies",
        axis="times one copy",
        note="Norm of the sum of the copies' gradients over their mean norm: their number when all push one way, its "
        "root when they are noise; it grows with the batch.",
    ),
    Curve(
        key="dynamics/{}/total_update_norm",
        title="Updates so far",
        axis="length in weights",
        note="The path that the weights of the role have gone.",
    ),
    Curve(
        key="interventions/{}/scale",
        title="What interventions left of its pull",
        axis="multiple",
        note="Damping, balancing, averaging of copies and learning rate together; 1 is nothing done.",
    ),
)
DRIFT = (
    Curve(
        key="dynamics/{}/kl_base",
        title="KL to the base",
        axis="nats a token",
        note="On a fixed probe set: how far the role has gone.",
    ),
    Curve(key="dynamics/{}/kl_last", title="KL to the last version", axis="nats a token", note="On the probe set."),
    Curve(
        key="dynamics/{}/entropy", title="Entropy by role", axis="nats a token", note="Near 0 replies hardly differ."
    ),
    Curve(key="dynamics/{}/clip_fraction", title="Clipped tokens by role", axis="of the tokens", kind="rate"),
)
BEHAVIOUR = (
    Curve(
        key="behaviour/{}/recall",
        title="Errors found",
        axis="of the errors",
        kind="rate",
        note="Of wrong answers shown, the share called wrong (recall).",
    ),
    Curve(
        key="behaviour/{}/false_alarm",
        title="False alarms",
        axis="of the right answers",
        kind="rate",
        note="Of right answers shown, the share called wrong.",
        counted="behaviour/{}/num_right_judged",
    ),
    Curve(key="behaviour/{}/says_correct", title="Says correct", axis="of the verdicts", kind="rate"),
    Curve(
        key="behaviour/{}/repaired",
        title="Repaired",
        axis="of the wrong answers",
        kind="rate",
        note="Of wrong answers given to it, the share it makes right.",
        counted="behaviour/{}/num_wrong_given",
    ),
    Curve(
        key="behaviour/{}/kept_right",
        title="Kept right",
        axis="of the right answers",
        kind="rate",
        note="Of right answers given to it, the share that stay right.",
        counted="behaviour/{}/num_right_given",
    ),
    Curve(
        key="behaviour/{}/copied_input",
        title="Copied input",
        axis="of the replies",
        kind="rate",
        note="Repairs that hand back the answer they were given.",
    ),
    Curve(
        key="behaviour/{}/distance",
        title="Distance of copies",
        axis="of neighbouring tokens",
        kind="rate",
        note="0: copies side by side write the same, word for word.",
    ),
    Curve(
        key="behaviour/{}/different_plans",
        title="Plans that differ",
        axis="of the copies",
        kind="rate",
        note="0: all copies were given the same work.",
    ),
    Curve(
        key="behaviour/{}/told_apart",
        title="Speaks as at the start",
        axis="of the replies",
        kind="rate",
        note="Replies that a classifier fitted on the first steps knows for the role's own.",
    ),
    Curve(
        key="behaviour/{}/confused",
        title="In another role's format",
        axis="of the replies",
        kind="rate",
        note="And not in its own.",
    ),
    Curve(key="behaviour/{}/length", title="Length", axis="tokens a reply"),
    Curve(key="behaviour/{}/num_turns", title="Turns", axis="turns a step"),
    Curve(key="behaviour/{}/unparsed", title="Not parsed", axis="of the replies", kind="rate"),
    Curve(key="behaviour/{}/truncated", title="Cut off", axis="of the replies", kind="rate"),
)
POLICIES = (
    Curve(key="learner/{}/entropy", title="Entropy", axis="nats a token", note="Near 0 replies hardly differ."),
    Curve(key="learner/{}/grad_norm", title="Gradient norm of the policy", axis="norm", note="Before clipping."),
    Curve(
        key="learner/{}/capture_index",
        title="Capture of the policy",
        axis="above an equal share",
        kind="rate",
        note="Largest share of gradient mass above what each role would have.",
    ),
    Curve(key="learner/{}/kl_sampled", title="KL to the sampling policy", axis="nats a token", quiet=1e-6),
    Curve(key="learner/{}/clip_fraction", title="Clipped tokens", axis="of the tokens", kind="rate"),
    Curve(
        key="learner/{}/mismatch_max",
        title="Engine against learner",
        axis="log-probability",
        note="Largest difference for one token.",
    ),
)
