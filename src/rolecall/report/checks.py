"""All checks of a run, the worst finding first."""

from __future__ import annotations

from rolecall.report.findings import RUN_CHECKS, Finding, Level
from rolecall.report.read import RunData
from rolecall.report.role_findings import ROLE_CHECKS

ORDER: tuple[Level, ...] = ("bad", "look", "note", "fine")


def findings(run: RunData) -> list[Finding]:
    """What every check found."""
    found = [finding for check in (*RUN_CHECKS, *ROLE_CHECKS) for finding in check(run)]
    return sorted(found, key=lambda finding: ORDER.index(finding.level))
