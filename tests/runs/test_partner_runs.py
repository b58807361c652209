"""Earlier partners in whole runs: they play, they are never trained, and a resumed run has the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from run_compare import differences
from test_cliff_guard import Means, measured  # noqa: F401

from rolecall.config import RunConfig
from rolecall.debugging.replay import replay_as_recorded
from rolecall.debugging.show import Page
from rolecall.errors import ConfigError, ParityError
from rolecall.files import KILLED
from rolecall.policies.memory import read_weights
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train
from rolecall.viewer.tokens import training_use

Small = Callable[..., RunConfig]
Killed = Callable[..., int]

TEAM: dict[str, Any] = {
    "workflow": {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
    "sharing": "shared",
    "steps": 5,
    "partners": {"share": 0.5, "slots": 2},
    "checkpoint": {"keep_last": 2},
}
ADAPTERS = {"sharing": "isolated", "model": {"kind": "adapter", "lora": {"rank": 2, "alpha": 4.0}}}


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def figures(path: Path, key: str) -> dict[int, float]:
    return {step: value for step, name, value in RunFolder.open(path).read_metrics() if name == key}


def episodes(path: Path) -> list[tuple[int, dict[str, Any]]]:
    rows = [row for file in sorted((path / "episodes").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    return [(row["step"], json.loads(row["record"])) for row in rows]


@pytest.mark.parametrize("policies", [{}, ADAPTERS], ids=["one whole model", "an adapter a role"])
def test_partners_play_earlier_versions_and_only_current_ones_are_trained(
    small: Small, tmp_path: Path, policies: dict[str, Any]
) -> None:
    config = small(**{**TEAM, **policies})
    run(config, tmp_path / "r")
    played, published = 0, versions(tmp_path / "r")
    for step, record in episodes(tmp_path / "r"):
        turns = record["graded"]["episode"]["turns"]
        earlier = [turn for turn in turns if "@memory" in turn["policy"]]
        current = [turn for turn in turns if "@memory" not in turn["policy"]]
        version = {policy: found[step - 1] for policy, found in published.items()}
        for turn in earlier:
            assert set(turn["completion"]["versions"]) <= set(range(version[turn["policy"].split("@")[0]] + 1))
            assert training_use(turn, config=config.model_dump(), source="training", advantages={})[0] is False
        for turn in current:
            assert set(turn["completion"]["versions"]) == {version[turn["policy"]]}
        if earlier:
            assert len({turn["key"][0] for turn in current}) <= 1  # one role is current
            played += 1
    assert played == sum(figures(tmp_path / "r", "partners/episodes").values()) > 0
    assert sum(figures(tmp_path / "r", "samples/partner").values()) > 0
    assert set(figures(tmp_path / "r", "partners/versions").values()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert max(figures(tmp_path / "r", "partners/max_abs_diff").values()) < 1e-4
    trained = sum(figures(tmp_path / "r", "samples/turns").values()) + sum(
        figures(tmp_path / "r", "samples/partner").values()
    )
    assert trained == sum(figures(tmp_path / "r", "episodes/turns").values())


def versions(path: Path) -> dict[str, list[int]]:
    """The version of each policy at the start of step 1, 2, ..."""
    found = RunFolder.open(path).read_metrics()
    names = {key.split("/")[1] for _, key, _ in found if key.startswith("policy/")}
    return {name: [0, *(int(value) for _, key, value in found if key == f"policy/{name}/version")] for name in names}


def test_all_episodes_of_a_task_have_the_same_partners(small: Small, tmp_path: Path) -> None:
    run(small(**TEAM), tmp_path / "r")
    tables: dict[tuple[int, str], set[tuple[tuple[str, str], ...]]] = {}
    for step, record in episodes(tmp_path / "r"):
        episode = record["graded"]["episode"]
        table = {turn["key"][0]: turn["policy"] for turn in episode["turns"]}
        seen = tables.setdefault((step, episode["task"]["id"]), set())
        seen.add(tuple(sorted(table.items())))
    for seen in tables.values():
        policies: dict[str, set[str]] = {}
        for table in seen:
            for role, policy in table:
                policies.setdefault(role, set()).add(policy)
        assert all(len(found) == 1 for found in policies.values())


@pytest.mark.parametrize("cut", [1, 3])
def test_a_resumed_run_has_the_same_partners_bit_for_bit(small: Small, tmp_path: Path, cut: int) -> None:
    run(small(**TEAM), tmp_path / "whole")
    run(small(**{**TEAM, "steps": cut}), tmp_path / "r")
    run(small(**TEAM), tmp_path / "r", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "r") == []
    assert files(tmp_path / "whole") == files(tmp_path / "r")


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (path / "partners").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill:partners:2", "kill:checkpoint/rename:3"])
def test_a_run_killed_around_its_memory_goes_on_as_if_nothing_had_been(
    small: Small, tmp_path: Path, killed: Killed, fault: str
) -> None:
    run(small(**TEAM), tmp_path / "whole")
    assert killed(small(**TEAM), tmp_path / "r", fault) == KILLED
    run(small(**TEAM), tmp_path / "r", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "r") == []


def test_the_memory_is_ranked_by_validation_and_old_files_go(
    small: Small,
    tmp_path: Path,
    measured: Means,  # noqa: F811
) -> None:
    measured({0: 0.2, 1: 0.2, 2: 0.6, 3: 0.6, 4: 0.9})
    changes = {**TEAM, "steps": 4, "partners": {"share": 0.5, "bucket_width": 0.2, "max_versions": 3}}
    run(small(**changes), tmp_path / "r")
    # 0.2 twice: the older goes for 0.6; then 0.6 twice: the older goes for 0.9
    assert sorted(files(tmp_path / "r")) == [f"0000000{step}-shared.safetensors" for step in (1, 3, 4)]
    assert figures(tmp_path / "r", "partners/buckets")[4] == 2.0  # in step 4: 0.2 and 0.6
    newest = tmp_path / "r" / "partners" / "00000004-shared.safetensors"
    kept = read_weights(tmp_path / "r/checkpoints/step-00000004/policies/shared/weights/model.safetensors")
    assert {name: value.tolist() for name, value in read_weights(newest).items() if name in kept} == {
        name: value.tolist() for name, value in kept.items()
    }


def test_an_episode_with_partners_replays_from_its_records(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small(**TEAM), tmp_path / "r")
    mixed = next(
        record["graded"]["episode"]["id"]
        for _, record in episodes(tmp_path / "r")
        if any("@memory" in turn["policy"] for turn in record["graded"]["episode"]["turns"])
    )
    assert replay_as_recorded(tmp_path / "r", mixed, Page())
    assert "replays as it was recorded" in " ".join(capsys.readouterr().out.split())


def test_a_memory_whose_weights_were_changed_stops_the_run(small: Small, tmp_path: Path) -> None:
    run(small(**{**TEAM, "steps": 1}), tmp_path / "r")
    old, new = (tmp_path / "r" / "partners" / f"0000000{step}-shared.safetensors" for step in (0, 1))
    old.write_bytes(new.read_bytes())
    with pytest.raises(ParityError, match="plays another partner than the one that was drawn"):
        run(small(**TEAM), tmp_path / "r", resume=True)


def test_a_version_whose_file_is_gone_is_named_and_left_out(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small(**{**TEAM, "steps": 2}), tmp_path / "r")
    (tmp_path / "r" / "partners" / "00000001-shared.safetensors").unlink()
    run(small(**{**TEAM, "steps": 3}), tmp_path / "r", resume=True)
    assert "the earlier version of step 1 has no file" in capsys.readouterr().out
    assert figures(tmp_path / "r", "partners/versions")[3] == 2.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workflow": {"name": "single_agent", "answer_format": "text"}}, "a role alone"),
        ({"evaluation": {"every_steps": 0}}, "nothing is validated"),
        ({"algorithm": {"name": "marsrl", "n": 2, "k": 1, "stages": 2}}, "draws agentic groups"),
        (
            {
                "sharing": None,
                "policies": {"s": {"model": "MODEL"}, "v": {"kind": "frozen", "model": "MODEL"}},
                "roles": {"solver": {"policy": "s"}, "verifier": {"policy": "v"}, "corrector": {"policy": "v"}},
            },
            "frozen policies and endpoints have no earlier versions",
        ),
    ],
)
def test_partners_that_cannot_be_are_refused(
    small: Small, base: dict[str, Any], tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    model = base["model"]["model"]
    named = json.loads(json.dumps({**TEAM, **changes}).replace("MODEL", model))
    if "policies" in named:
        named["model"] = {"model": "builtin:tiny"}
    with pytest.raises(ConfigError, match=words):
        run(small(**named), tmp_path / "r")
