"""The role-to-policy table: which weights each role acts with, and which roles are trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from rolecall.engines.specs import PolicySpec
from rolecall.errors import ConfigError, nearest

MAX_NAME = 200
SHARED = "shared"
ISOLATED = "isolated"


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTable:
    """Every role's policy, and the roles whose turns enter the loss. Roles and policies are keys, never parsed.

    >>> spec = PolicySpec(name="team", kind="model", model="builtin:tiny")
    >>> make_table(("solver", "verifier"), sharing="shared", template=spec).roles["verifier"]
    'team'
    """

    roles: Mapping[str, str]
    specs: Mapping[str, PolicySpec]
    train_roles: tuple[str, ...]

    @property
    def local(self) -> Mapping[str, PolicySpec]:
        """The policies whose weights are on this machine: all but those that endpoints serve."""
        return {name: spec for name, spec in self.specs.items() if spec.local}

    def policy(self, role: str) -> str:
        """The policy of a role; `ConfigError` for a role that the table does not have."""
        if role not in self.roles:
            raise ConfigError(f"the table has no role {role!r}{nearest(role, self.roles)}")
        return self.roles[role]

    def roles_of(self, policy: str) -> tuple[str, ...]:
        """The roles that act with a policy, in the workflow's order."""
        return tuple(role for role, name in self.roles.items() if name == policy)


def make_table(
    roles: Sequence[str],
    *,
    sharing: str | None = None,
    template: PolicySpec | None = None,
    specs: Mapping[str, PolicySpec] | None = None,
    role_policies: Mapping[str, str] | None = None,
    train_roles: Collection[str] | None = None,
) -> PolicyTable:
    """Either `sharing` with a `template` ("shared": one policy for all roles, under the template's name; "isolated":
    one a role, under the role's name), or `specs` with a row of `role_policies` for every role of the workflow.

    `train_roles` defaults to all roles whose policy is trained. `ConfigError` names what does not fit, and the nearest.
    """
    if not roles:
        raise ConfigError("the workflow has no roles; give `roles` at least one name")
    for what, names in (("role", roles), ("policy", specs or ())):
        for name in names:
            check_name(what, name)
    if sharing is not None:
        if specs or role_policies or template is None:
            raise ConfigError(f"sharing = {sharing!r} stands for a whole table; it takes a model and no rows")
        table, policies = _short_form(roles, sharing, template)
    else:
        policies = dict(specs or {})
        table = _rows(roles, policies, dict(role_policies or {}))
    trained = _train_roles(table, policies, train_roles)
    return PolicyTable(roles=table, specs=policies, train_roles=trained)


def check_name(what: str, name: str) -> None:
    """`ConfigError` for the name of a role or policy that no file name could hold: checkpoints name files by it."""
    length = len(quote(name, safe=""))
    if length > MAX_NAME:
        raise ConfigError(
            f"{what} {name[:40] + '...'!r} has a name of {length} characters, as a file name has it; wanted at most "
            f"{MAX_NAME} (a letter outside ASCII counts as 6 to 12): shorten it"
        )


def _short_form(
    roles: Sequence[str], sharing: str, template: PolicySpec
) -> tuple[dict[str, str], dict[str, PolicySpec]]:
    if sharing == SHARED:
        return dict.fromkeys(roles, template.name), {template.name: template}
    if sharing == ISOLATED:
        return {role: role for role in roles}, {role: replace(template, name=role) for role in roles}
    raise ConfigError(f"sharing is {sharing!r}{nearest(sharing, (SHARED, ISOLATED))}")


def _rows(roles: Sequence[str], specs: Mapping[str, PolicySpec], rows: Mapping[str, str]) -> dict[str, str]:
    for role in rows:
        if role not in roles:
            raise ConfigError(
                f"the table names the role {role!r}, which the workflow does not have{nearest(role, roles)}"
            )
    for role in roles:
        if role not in rows:
            raise ConfigError(
                f"role {role!r} has no policy; set roles.{role}.policy to one of {sorted(specs)}, or use "
                "sharing = 'shared' or 'isolated'"
            )
        if rows[role] not in specs:
            raise ConfigError(f"role {role!r} names the policy {rows[role]!r}{nearest(rows[role], specs)}")
    unused = [name for name in specs if name not in rows.values()]
    if unused:
        raise ConfigError(f"policy {unused[0]!r} is used by no role; give it one, or leave its table out")
    for name, spec in specs.items():
        if spec.name != name:
            raise ConfigError(f"policy {name!r} has a spec named {spec.name!r}; the two must be equal")
    return {role: rows[role] for role in roles}


def _train_roles(
    table: Mapping[str, str], specs: Mapping[str, PolicySpec], wanted: Collection[str] | None
) -> tuple[str, ...]:
    for role in wanted or ():
        if role not in table:
            raise ConfigError(f"train_roles names the unknown role {role!r}{nearest(role, table)}")
        if not (spec := specs[table[role]]).trained:
            why = "is frozen" if spec.local else "is served by an endpoint and can never be trained"
            raise ConfigError(f"train_roles names {role!r}, whose policy {table[role]!r} {why}; drop one of the two")
    trained = tuple(
        role for role, policy in table.items() if (role in wanted if wanted is not None else specs[policy].trained)
    )
    if not trained and wanted is not None:
        raise ConfigError("train_roles is empty: nothing would be trained; leave it out to train every trained policy")
    return trained
