"""The report: one self-contained HTML page from one or several run folders. Imports nothing of the training side."""

from __future__ import annotations

from rolecall.report.write import make_page, write_comparison, write_report

__all__ = ["make_page", "write_comparison", "write_report"]
