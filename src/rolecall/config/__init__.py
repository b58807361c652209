"""The whole configuration as strict typed models: TOML in, one resolved copy in the run folder out.

A key that nothing reads is an error that names the nearest key.
"""

from rolecall.config.load import (
    apply_overrides,
    check_kinds,
    explain,
    load_config,
    make_config,
    overlay,
    read_recipe,
    toml_value,
)
from rolecall.config.sections import Component, EvaluationConfig, PolicyConfig, RolloutConfig, RunConfig, Section

__all__ = [
    "Component",
    "EvaluationConfig",
    "PolicyConfig",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "apply_overrides",
    "check_kinds",
    "explain",
    "load_config",
    "make_config",
    "overlay",
    "read_recipe",
    "toml_value",
]
