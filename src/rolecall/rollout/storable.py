"""What a workflow hands over is checked where it does so: what cannot be stored or graded ends that episode, with the
line in the workflow's code, and never the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rolecall.errors import WorkflowError
from rolecall.records import Claim, ClaimKind, Key, Message, Outcome, Verdict


def is_text(value: object) -> bool:
    """Whether `value` is a text that a file can hold: half a surrogate pair cannot be written as UTF-8.

    >>> is_text("1/2"), is_text(0.5), is_text(chr(0xD800))
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def checked_messages(key: Key, messages: Any) -> tuple[Message, ...]:
    """The messages of a call, each a mapping of the texts `role` and `content` and nothing else."""
    if isinstance(messages, str) or not hasattr(messages, "__iter__"):
        kind = "a string" if isinstance(messages, str) else f"{messages!r:.80}"
        raise WorkflowError(f'{key}: reply() got {kind}; wanted messages: [{{"role": "user", "content": ...}}]')
    asked: tuple[Message, ...] = tuple(messages)
    if not asked:
        raise WorkflowError(f'{key}: reply() got no messages; wanted at least one: {{"role": "user", "content": ...}}')
    for number, message in enumerate(asked):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise WorkflowError(f"{key}: message {number} is {message!r:.80}; wanted a dict of role and content")
        for name in ("role", "content"):
            if not is_text(message[name]):
                seen = message[name]
                raise WorkflowError(
                    f"{key}: the {name} of message {number} is {seen!r:.80} ({type(seen).__name__}); wanted a text "
                    "(the text of a reply is None when its reasoning was cut off)"
                )
    return asked


def checked_claim(key: Key, claim: object) -> Claim | None:
    """What `Workflow.claim` returned: None, or a claim whose value can be stored and judged."""
    if claim is None:
        return None
    if not isinstance(claim, Claim) or not isinstance(claim.kind, ClaimKind):
        raise WorkflowError(f"the claim of {key} is {claim!r:.80}; wanted Claim(kind=ClaimKind...., value=...) or None")
    if claim.value is not None and not is_text(claim.value):
        raise WorkflowError(f"the claim of {key} has the value {claim.value!r:.80}; wanted a text, or None: unparsed")
    if claim.kind is ClaimKind.VERDICT and claim.value not in (None, *Verdict):
        raise WorkflowError(
            f"the claim of {key} is the verdict {claim.value!r:.80}; wanted one of {', '.join(Verdict)}, or None"
        )
    return claim


def checked_outcome(name: str, outcome: object) -> Outcome:
    """What a workflow returned: an `Outcome` with a text or no answer, and figures that are finite numbers."""
    if not isinstance(outcome, Outcome):
        raise WorkflowError(f"workflow {name} returned {outcome!r:.80}; wanted Outcome(answer=...)")
    if not (outcome.answer is None or is_text(outcome.answer)):
        raise WorkflowError(f"workflow {name} returned the answer {outcome.answer!r:.80}; wanted a string or None")
    if not is_text(outcome.reason):
        raise WorkflowError(f"workflow {name} returned the reason {outcome.reason!r:.80}; wanted a string")
    if not isinstance(outcome.figures, Mapping):
        raise WorkflowError(f"workflow {name} returned the figures {outcome.figures!r:.80}; wanted names to numbers")
    for figure, value in outcome.figures.items():
        if not is_text(figure) or not isinstance(value, int | float) or not math.isfinite(value):
            raise WorkflowError(
                f"workflow {name} returned the figure {figure!r:.40} = {value!r:.40}; wanted a name and a finite number"
            )
    return outcome
