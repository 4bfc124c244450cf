"""Policies of resources and identities (docs/contract/policies.md 5): read once, asked per request.

policy = parse(text, Kind.RESOURCE)
decide(request, resource=policy, identities=None).is_allowed
"""

from queuegate.protocol.policies.decisions import Decision, Reason, decide, missing_statement
from queuegate.protocol.policies.documents import Policy, compile_policy, parse
from queuegate.protocol.policies.requests import Principal, Request
from queuegate.protocol.policies.statements import Kind, Statement

__all__ = [
    "Decision",
    "Kind",
    "Policy",
    "Principal",
    "Reason",
    "Request",
    "Statement",
    "compile_policy",
    "decide",
    "missing_statement",
    "parse",
]
