"""Policies of resources and identities (docs/contract/policies.md 5), compiled once and evaluated
per request:

policy = parse(text, PolicyKind.RESOURCE); decide(request, resource=policy,
identities=None).is_allowed
"""

from queuegate.protocol.policies.patterns import PolicyRequest, Principal
from queuegate.protocol.policies.statements import (
    Decision,
    Policy,
    PolicyKind,
    Reason,
    Statement,
    compile_policy,
    decide,
    missing_statement,
    parse,
)

__all__ = [
    "Decision",
    "Policy",
    "PolicyKind",
    "PolicyRequest",
    "Principal",
    "Reason",
    "Statement",
    "compile_policy",
    "decide",
    "missing_statement",
    "parse",
]
