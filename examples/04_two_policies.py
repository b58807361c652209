"""Two policies: a writer that is trained and a judge that stays as it is. `python examples/04_two_policies.py [FOLDER]`

The same as a recipe: the tables below are its TOML. Workflow code knows nothing of policies.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rolecall.config import make_config
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

RECIPE = {
    "name": "two-policies",
    "steps": 2,
    "workflow": {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text", "max_rounds": 1},
    "tasks": {
        "name": "reasoning_gym",
        "family": "chain_sum",
        "params": {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 1, "allow_negation": False},
        "question": "{expression}",
        "drop_spaces": True,
        "size": 400,
        "sizes": {"train": 40, "validation": 0, "test": 10},
    },
    "policies": {
        "writer": {"kind": "model", "model": "builtin:tiny", "learner": {"lr": 1e-4}},
        "judge": {"kind": "frozen", "model": "builtin:tiny"},
    },
    "roles": {
        "solver": {"policy": "writer"},
        "corrector": {"policy": "writer"},
        "verifier": {"policy": "judge"},
    },
    "algorithm": {"name": "agent_grpo", "n": 4},
    "sampling": {"max_tokens": 24, "max_prompt_tokens": 96},
    "rollout": {"tasks_per_step": 4},
    "engine": {"mode": "inline"},
    "evaluation": {"greedy": False},
}


def main(folder: Path) -> None:
    config = make_config(RECIPE)
    summary = train(config, folder, PlainLines(config.steps, ()), overwrite=True)
    print(f"who plays whom: {summary['roles_to_policies']}")
    metrics = {key: value for step, key, value in RunFolder.open(folder).read_metrics() if step == summary["steps"]}
    print(f"the writer is at version {metrics['policy/writer/version']:.0f}")
    print(f"the judge has a version: {'policy/judge/version' in metrics}")  # nothing of it is trained or published


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "run")
