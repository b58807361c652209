"""Whether roles begin to speak alike: one role's format in another's output, and a classifier that tells them apart.

The classifier is naive Bayes on which hashed words and pairs of words a text holds, numbers being all alike. It is
fitted once, on what the roles said in the first steps of the run, and never again: how well it tells the roles apart
later says how far they have left the way each of them spoke. No torch; a thousand short texts take a few hundredths of
a second.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rolecall.dynamics.drift import spread
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.records import Turn
from rolecall.workflows.base import Workflow

NUM_BUCKETS = 4096
MAX_WORDS = 256
"""Words of a text that count: half from its beginning, half from its end."""
REFERENCE_STEPS = 5
"""Steps after which the reference is closed, however few texts a role has in it."""
START_STEPS = 3
"""Measured steps whose mean is how well the roles could be told apart at the start."""
PLAIN = "I am not sure what to say about this"
"""A text that is in nobody's form: what reads it has no form of its own."""

_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_|\n")


def features(text: str) -> frozenset[int]:
    """The hashed words and pairs of neighbours in a text; every number is the same word.

    >>> features("Take 12, not 7.") == features("take 3, not 4.")
    True
    """
    words = ["0" if word.isdecimal() else word for word in _WORD.findall(text.lower())]
    if len(words) > MAX_WORDS:
        words = words[: MAX_WORDS // 2] + words[-MAX_WORDS // 2 :]
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return frozenset(zlib.crc32(item.encode()) % NUM_BUCKETS for item in (*words, *pairs))


class RoleClassifier:
    """Bernoulli naive Bayes with equal priors over the features f that some role's texts hold: the role r that
    maximises the sum of log p_rf over those that a text holds and of log(1 - p_rf) over those that it does not.

    p_rf = (n_rf + q_f) / (N_r + 1), where n_rf of the N_r texts of r hold f, and q_f is the mean over the roles of
    (n_rf + 1/2) / (N_r + 1): what a role's few texts leave open is taken from all of them.
    """

    def __init__(
        self, texts: Mapping[str, int] | None = None, counts: Mapping[str, Counter[int]] | None = None
    ) -> None:
        self.texts = dict(texts or {})
        self.counts = dict(counts or {})
        self._odds: dict[str, dict[int, float]] | None = None  # log(p / (1 - p)) by role and feature
        self._without: dict[str, float] = {}  # the score of a text without any of the features

    def add(self, role: str, text: str) -> None:
        self.texts[role] = self.texts.get(role, 0) + 1
        self.counts.setdefault(role, Counter()).update(features(text))
        self._odds = None

    def role_of(self, text: str) -> str | None:
        """The role that the text is most like; None where several are equally near."""
        odds = self._fitted()
        found = sorted(features(text))
        scores = {role: self._without[role] + sum(of.get(f, 0.0) for f in found) for role, of in odds.items()}
        best = max(scores.values(), default=0.0)
        winners = [role for role, score in scores.items() if score == best]
        return winners[0] if len(winners) == 1 else None

    def _fitted(self) -> dict[str, dict[int, float]]:
        if self._odds is None:
            known = sorted(set().union(*self.counts.values()))
            self._odds = {role: {} for role in self.counts}
            self._without = dict.fromkeys(self.counts, 0.0)
            for f in known:
                shares = [(counts[f] + 0.5) / (self.texts[role] + 1) for role, counts in self.counts.items()]
                usual = sum(shares) / len(shares)
                for role, counts in self.counts.items():
                    p = (counts[f] + usual) / (self.texts[role] + 1)
                    self._odds[role][f] = math.log(p) - math.log1p(-p)
                    self._without[role] += math.log1p(-p)
        return self._odds


class Leakage:
    """How well the roles of a run can be told apart by what they say. Call `update` once a step.

    The reference are the first `leakage_reference` texts of each role, from whole steps: it closes with the step in
    which every role that was heard has so many, and after `REFERENCE_STEPS` at the latest. Figures begin with the next
    step, on texts that it has not seen. Roles that were not heard by then have no figures.
    """

    def __init__(self, settings: DynamicsSettings | None = None) -> None:
        self.settings = settings or DynamicsSettings()
        self.classifier = RoleClassifier()
        self.steps = 0  # that the reference was gathered in
        self.closed = False
        self.start: dict[str, list[float]] = {}

    def update(self, turns: Mapping[str, Sequence[Turn]]) -> dict[str, float]:
        """Take in a step's turns, by role. Before the reference is closed there is nothing to return."""
        most = self.settings.leakage_turns
        if not most:
            return {}
        texts = {
            role: [turn.text for turn in spread([turn for turn in said if turn.text], most) if turn.text]
            for role, said in sorted(turns.items())
        }
        if self.closed:
            return self._measure(texts)
        if any(texts.values()):
            self._gather(texts)
        return {}

    def state(self) -> dict[str, Any]:
        """Plain JSON, for a checkpoint."""
        return {
            "texts": dict(self.classifier.texts),
            "counts": {role: sorted(counts.items()) for role, counts in self.classifier.counts.items()},
            "steps": self.steps,
            "closed": self.closed,
            "start": self.start,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.classifier = RoleClassifier(
            texts=dict(state["texts"]),
            counts={role: Counter(dict(counts)) for role, counts in state["counts"].items()},
        )
        self.steps, self.closed = state["steps"], state["closed"]
        self.start = {role: list(seen) for role, seen in state["start"].items()}

    def _gather(self, texts: Mapping[str, Sequence[str]]) -> None:
        wanted, heard = self.settings.leakage_reference, self.classifier.texts
        for role, said in texts.items():
            for text in said[: max(0, wanted - heard.get(role, 0))]:
                self.classifier.add(role, text)
        self.steps += 1
        self.closed = self.steps >= REFERENCE_STEPS or all(count >= wanted for count in heard.values())

    def _measure(self, texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
        known = self.classifier.texts
        metrics: dict[str, float] = {}
        rates: list[float] = []
        if len(known) < 2:
            return metrics
        for role in (role for role, said in texts.items() if said and role in known):
            taken = Counter(self.classifier.role_of(text) for text in texts[role])
            area, number = f"behaviour/{role}", len(texts[role])
            for other in sorted(known):
                share = taken[other] / number
                if other != role:
                    metrics[f"{area}/taken_for/{other}"] = share
                    continue
                rates.append(share)
                metrics[f"{area}/told_apart"] = share
                seen = self.start.setdefault(role, [])
                if len(seen) < START_STEPS:
                    seen.append(share)
                metrics[f"{area}/told_apart_lost"] = sum(seen) / len(seen) - share
        if rates:
            metrics["behaviour/role_accuracy"] = sum(rates) / len(rates)
        return metrics


def forms(workflow: Workflow) -> dict[str, str]:
    """The form of every role that has one by which it can be told from others: the kind of its claims, or its own
    name. Two roles of one form share it; a form that reads any text is none."""
    found: dict[str, str] = {}
    for role in workflow.roles:
        if workflow.in_form(role, PLAIN) is False:
            claim = workflow.claim(role, "", False)
            found[role] = role if claim is None else str(claim.kind)
    return found


def format_metrics(turns: Mapping[str, Sequence[Turn]], workflow: Workflow) -> dict[str, float]:
    """`behaviour/<role>/format/<other>`: the share of a role's texts that are in the form of another role, where the
    two forms differ; `behaviour/<role>/confused`: those in the form of another role and not in its own."""
    metrics: dict[str, float] = {}
    known = forms(workflow)
    for role, said in turns.items():
        texts = [turn.text for turn in said if turn.text is not None]
        others = [other for other in known if other != role and known[other] != known.get(role)]
        if not texts or not others:
            continue
        inside = {other: [bool(workflow.in_form(other, text)) for text in texts] for other in others}
        for other, read in inside.items():
            metrics[f"behaviour/{role}/format/{other}"] = sum(read) / len(texts)
        if role in known:
            own = [bool(workflow.in_form(role, text)) for text in texts]
            confused = [any(read) and not mine for mine, *read in zip(own, *inside.values(), strict=True)]
            metrics[f"behaviour/{role}/confused"] = sum(confused) / len(texts)
    return metrics
