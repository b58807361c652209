"""What a model was made for against what its roles ask of it, said before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rolecall.assemble import make_plan
from rolecall.context_limit import context_notes
from rolecall.dry_run import describe
from rolecall.errors import ConfigError
from rolecall.progress import PlainLines
from rolecall.train import train

LONG = {"max_tokens": 48, "max_prompt_tokens": 2001}  # the tiny model was made for 2048


def test_a_prompt_and_reply_beyond_the_models_context_are_named_with_what_to_set(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "max_prompt_tokens 2001 and max_tokens 48 are together more than the 2048 that "
    move = "more than 2000 tokens cuts its reply short, one of 2048 or more fails; set max_prompt_tokens to 2000"
    config = small(steps=0, sampling=LONG)
    (line,) = context_notes(make_plan(config))
    assert line.startswith(f"role 'solver': {words}")
    assert line.endswith(move)
    assert line in describe(make_plan(config)).splitlines()
    train(config, tmp_path / "r", PlainLines(0, ()))
    assert f"{line}\n" in capsys.readouterr().out


def test_what_just_fits_is_not_mentioned(small: Any) -> None:
    assert context_notes(make_plan(small(sampling=LONG | {"max_prompt_tokens": 2000}))) == []


def test_the_longer_replies_of_evaluation_count(small: Any) -> None:
    (line,) = context_notes(make_plan(small(evaluation={"sampling": {"max_tokens": 1793}})))
    assert "max_prompt_tokens 256 and max_tokens 1793" in line


def test_replies_that_leave_no_prompt_any_room_are_an_error(small: Any, tmp_path: Path) -> None:
    config = small(sampling={"max_tokens": 2048})
    for use in (lambda: describe(make_plan(config)), lambda: train(config, tmp_path / "r", PlainLines(1, ()))):
        with pytest.raises(ConfigError, match=r"role 'solver': max_tokens is 2048, and the model .* for 2048 tokens"):
            use()
    assert not (tmp_path / "r").exists()
