"""Policies of queues, topics, keys and sessions: checks, warnings, and authorities.

The rules are in docs/contract/policies.md 5. A key without a policy may do everything in its
account. In the mode ``warn`` nothing is refused; each cause is logged once, with the statement that
is missing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import orjson

from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policy_documents import (
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
from queuegate.protocol.policy_patterns import Context, PolicyRequest, Principal
from queuegate.storage import stored_keys
from queuegate.storage.storage_errors import (
    AccessDenied,
    AuthorizationError,
    Denied,
    KeyDoesNotExist,
    KeyUnfit,
    PolicyRefused,
    Rejected,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Key, Topic
    from queuegate.storage.queue_model import Queue


_log = logging.getLogger("queuegate.policies")
OF_TAGS: Final = "aws:resourcetag/"
_CONDITION_KEYS = """
    aws:currenttime aws:epochtime aws:multifactorauthage aws:multifactorauthpresent
    aws:principalaccount aws:principalarn aws:principalisawsservice aws:principalservicename
    aws:principaltype aws:requestedregion aws:resourceaccount aws:securetransport
    aws:sourceaccount aws:sourcearn aws:sourceip aws:sourceowner aws:tokenissuetime
    aws:useragent aws:username aws:viaawsservice sns:endpoint sns:protocol
"""
_KNOWN_KEYS = frozenset(_CONDITION_KEYS.split())
"""Condition keys that requests have here as on AWS."""
_LEADING_NAME = re.compile(r'"\s*:')
"""The last part of a member's name."""


def absent_keys(text: str, kind: PolicyKind) -> str:
    """Return a phrase about condition keys that no request has here; empty: each has a value.
    Raises Malformed."""
    statements = parse(text, kind).statements
    keys = {one.key for statement in statements for one in statement.conditions} - _KNOWN_KEYS
    absent = ", ".join(sorted(key for key in keys if not key.startswith(OF_TAGS)))
    return f"asks for {absent}, which is never there" if absent else ""


def warn_of(text: str | None, kind: PolicyKind, of: str) -> None:
    """Log a line for each part of a new policy that may not do what its author means. ``text`` is a
    valid policy; None or empty: none was set. ``of`` names its resource or key."""
    if not text:
        return
    absent = absent_keys(text, kind)
    if absent:
        _log.warning("The policy of %s %s.", of, absent)
    if len(_LEADING_NAME.findall(text)) > len(
        _LEADING_NAME.findall(orjson.dumps(orjson.loads(text)).decode())
    ):
        _log.warning("The policy of %s has a member twice: the last one counts.", of)


LONGEST_KEY_POLICY: Final = 6_144
"""Maximum characters of a policy, as of managed policies of AWS, without white space between
values."""
MOST_READ: Final = 65_536
_SYNTAX = "Syntax errors in policy."
_WORDS = {
    "a policy of an identity has no Principal": "Policy document should not specify a principal.",
    "a statement needs either Action or NotAction": "Policy statement must contain actions.",
    "a statement needs either Resource or NotResource": "Policy statement must contain resources.",
    "an action must be * or a service with an action": (
        "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc."
    ),
    "two statements have the same Sid": ("Statement IDs (SID) in a single policy must be unique."),
}
"""IAM's texts for some faults; for all others IAM repeats the fault."""


def checked_key_policy(policy: str | None, *, is_administrator: bool) -> str | None:
    """Return a policy for a key in its stored form; None for an empty text. Raises KeyUnfit and
    PolicyRefused."""
    if not policy:
        return None
    if is_administrator:
        raise KeyUnfit("The key of an administrator may do everything: it has no policy.")
    if len(policy) > MOST_READ:
        raise _too_long()
    try:
        document = orjson.loads(policy)
        compile_policy(document, PolicyKind.IDENTITY)
    except orjson.JSONDecodeError:
        raise _malformed(f"{_SYNTAX} It is no JSON.") from None
    except Malformed as error:
        reason = str(error)
        said = _WORDS.get(reason) or f"{_SYNTAX} {reason[:1].upper()}{reason[1:]}."
        raise _malformed(said) from None
    compact = orjson.dumps(document).decode()
    if len(compact) > LONGEST_KEY_POLICY:
        raise _too_long()
    return compact


async def give(tx: Transaction, key: Key, policy: str) -> Key:
    """Set the policy of a key, or remove it with an empty text. Raises KeyDoesNotExist for revoked
    keys, KeyUnfit and PolicyRefused."""
    stored = checked_key_policy(policy, is_administrator=key.is_administrator)
    changed = await stored_keys.give_policy(tx, None, key.key_id, stored)
    if changed is None:
        raise KeyDoesNotExist(key.key_id)
    warn_of(policy, PolicyKind.IDENTITY, f"key {changed.name}")
    return changed


def _malformed(text: str) -> PolicyRefused:
    return PolicyRefused(f"MalformedPolicyDocument: {text}")


def _too_long() -> PolicyRefused:
    return PolicyRefused(f"LimitExceeded: Cannot exceed quota for PolicySize: {LONGEST_KEY_POLICY}")


class Authority(Protocol):
    """An authorizer, apart from policies."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AccessDenied or AuthorizationError unless the caller has the right to the resource.
        Called for each request, so implementations cache their decisions."""


_OF_ADMINISTRATORS = "queuegate:"
"""Prefix of rights that only administrators have: those to keys."""
_ACCOUNT_PART = 4


class OwnAccounts:
    """An ``Authority`` where signatures are verified: a key may do everything in its account except
    manage keys; administrators may do everything."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AuthorizationError unless the resource is the caller's, or the caller is an
        administrator."""
        if caller.is_administrator:
            return
        parts = arn.split(":", 5)
        # The operation refuses texts that are not ARNs.
        is_own = len(parts) <= _ACCOUNT_PART or parts[_ACCOUNT_PART] == caller.account_id
        if is_own and not right.startswith(_OF_ADMINISTRATORS):
            return
        refusal = AuthorizationError(
            f"User: {caller.arn} is not authorized to perform: {right} on resource: {arn}"
        )
        refusal.denied = Denied("right", arn)
        raise refusal


_ACTIONS_OF_OWNERS = """
    AddPermission CancelMessageMoveTask CreateQueue DeleteQueue ListMessageMoveTasks ListQueues
    ListQueueTags RemovePermission SetQueueAttributes StartMessageMoveTask TagQueue UntagQueue
"""
OF_OWNERS: Final = frozenset(_ACTIONS_OF_OWNERS.split())
"""Actions that a policy of a queue cannot allow to others ("Overview of managing access in Amazon
SQS")."""
_OF_OWNERS = frozenset(f"sqs:{action}" for action in OF_OWNERS)
_SENDS: Final = "sqs:SendMessage"
_SNS: Final = "sns.amazonaws.com"
_MOST = 10_000
_KINDS: Mapping[PolicyKind | None, str] = {
    PolicyKind.RESOURCE: "resource-based",
    PolicyKind.SESSION: "session",
}
_UNSEEN = "It is not known from where this is asked."
_MOVING = ("aws:currenttime", "aws:epochtime", OF_TAGS)
"""Condition keys that change with each request."""
_OF_ORIGINS = ("aws:sourceip", "aws:securetransport")


class _Compiled(NamedTuple):
    """A compiled policy."""

    policy: Policy
    is_steady: bool = True
    """Its decision for one caller and origin never changes."""
    asks_for_origin: bool = False
    asks_for_agent: bool = False
    asks_for_tags: bool = False


_NONE = _Compiled(Policy((), ()))


class Everybody:
    """An ``Authority`` that leaves everything to policies."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Allow everything."""


class PolicyChecks:
    """The policy checks of each request and of each copy of a message to a queue."""

    def __init__(self, clock: Clock, *, enforces: bool) -> None:
        self._clock = clock
        self.enforces = enforces
        """True if policies are enforced; False: refusals are logged only."""
        self.asks_for_origins = False
        """True once a checked policy has referred to the origin of requests."""
        self._compiled: dict[tuple[PolicyKind, str], _Compiled] = {}
        self._allowed: set[Hashable] = set()
        """Decisions to allow, valid while policies and callers are the same."""
        self._logged: set[Hashable] = set()
        self.policy_of: Callable[[Caller], str | None] = lambda _: None
        """Returns the policy of a caller's key; None: everything in its account is allowed."""

    def check(
        self, caller: Caller, right: str, resource: Queue | Topic, about: Context | None = None
    ) -> None:
        """Raise AccessDenied, for topics AuthorizationError, unless the caller has the right.
        ``about`` has condition keys of this action."""
        if caller.is_administrator:
            return
        if caller.session is not None:
            self._check_session(caller, right, resource.arn, resource.account_id, resource.tags)
        text = resource.attributes.get("Policy")
        is_own = caller.account_id == resource.account_id and not caller.is_anonymous
        given = None if caller.is_anonymous else self.policy_of(caller)
        if is_own and text is None and given is None:
            return
        known = self._known(PolicyKind.RESOURCE, text, resource.arn)
        if is_own and given is None and not known.policy.denying:
            return
        if not is_own and right in _OF_OWNERS:
            known = _NONE
        own = self._known(PolicyKind.IDENTITY, given, caller.user_name)
        who = self._asking(caller, known, own)
        place: Hashable = None
        if known.is_steady and own.is_steady and about is None:
            place = text, given, resource.arn, right, who
        if place in self._allowed:
            return
        if known.asks_for_tags or own.asks_for_tags:
            about = {**_tagged(resource.tags), **(about or {})}
        request = self._request(caller, right, resource.arn, resource.account_id, about or {})
        identities = None if given is None else (own.policy,)
        decision = decide(request, resource=known.policy, identities=identities)
        told = None
        if not is_own and decision[:2] != (Reason.NOT_ALLOWED, PolicyKind.IDENTITY):
            plain = self._request(caller, right, resource.arn, resource.account_id, {})
            told = decide(plain, resource=None, identities=identities)
        self._conclude(request, decision, place, (text, given), told)

    def check_key(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AccessDenied, for SNS AuthorizationError, unless the caller's key has the right to
        a resource that is absent or has no policy."""
        if caller.session is not None:
            self._check_session(caller, right, arn, caller.account_id)
        given = None if caller.is_administrator else self.policy_of(caller)
        if given is not None and not caller.is_anonymous:
            self._check_identity(caller, right, arn, caller.account_id, given)

    def check_absent(self, caller: Caller, right: str, arn: str, owner_id: str) -> None:
        """Raise for an absent queue or topic what ``check`` raises for one without a policy, so
        that other accounts cannot find out names. In the caller's account, the policy of the key
        decides."""
        if caller.is_administrator or not self.enforces or owner_id == caller.account_id:
            self.check_key(caller, right, arn)
            return
        if caller.session is not None:
            self._check_session(caller, right, arn, owner_id)
        given = None if caller.is_anonymous else self.policy_of(caller)
        own = self._known(PolicyKind.IDENTITY, given, caller.user_name)
        self._asking(caller, _NONE, own)
        request = self._request(caller, right, arn, owner_id, {})
        identities = None if given is None else (own.policy,)
        decision = decide(request, resource=None, identities=identities)
        raise _refusal(request, decision, decision)

    def _check_session(
        self,
        caller: Caller,
        right: str,
        arn: str,
        owner_id: str,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Raise the same unless each policy of the caller's session allows the right, in addition
        to the policies of the key and the resource."""
        assert caller.session is not None
        for text in caller.session.policies:
            self._check_identity(caller, right, arn, owner_id, text, PolicyKind.SESSION, tags)

    def _check_identity(
        self,
        caller: Caller,
        right: str,
        arn: str,
        owner_id: str,
        text: str,
        kind: PolicyKind | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Raise a refusal unless this policy alone allows the right. ``kind`` is that of the
        refusal; None: as decided."""
        own = self._known(PolicyKind.IDENTITY, text, caller.user_name)
        who = self._asking(caller, _NONE, own)
        place: Hashable = (kind, text, arn, right, who) if own.is_steady else None
        if place in self._allowed:
            return
        request = self._request(caller, right, arn, owner_id, _tagged(tags or {}))
        asked = request._replace(owner_id=caller.account_id)
        decision = decide(asked, resource=None, identities=(own.policy,))
        self._conclude(request, decision._replace(kind=kind or decision.kind), place, (text,))

    def _known(self, kind: PolicyKind, text: str | None, of: str) -> _Compiled:
        """Return the compiled policy of a text; ``of`` names its owner."""
        if text is None:
            return _NONE
        known = self._compiled.get((kind, text))
        if known is None:
            known = _compiled(text, kind, of)
            if len(self._compiled) >= _MOST:
                self._compiled.clear()
            self._compiled[kind, text] = known
        return known

    def _asking(self, caller: Caller, known: _Compiled, own: _Compiled) -> Hashable:
        """Return the properties of the caller to which these policies refer. Raises AccessDenied if
        they are unknown."""
        origin = agent = None
        if known.asks_for_origin or own.asks_for_origin:
            self.asks_for_origins = True
            origin = caller.origin
            if origin is None:
                raise AccessDenied(_UNSEEN)
        if known.asks_for_agent or own.asks_for_agent:
            agent = caller.agent
            if agent is None:
                raise AccessDenied(_UNSEEN)
        return (
            caller.region,
            caller.account_id,
            caller.access_key,
            caller.is_anonymous,
            caller.role_arn,
            caller.session,
            origin,
            agent,
        )

    def _conclude(
        self,
        request: PolicyRequest,
        decision: Decision,
        place: Hashable,
        documents: Hashable,
        told: Decision | None = None,
    ) -> None:
        """Raise or log a refusal, or cache the permission. ``told`` is the decision that the caller
        sees; None: the same."""
        if not decision.is_allowed:
            self._log_refusal(request, decision, documents)
            if self.enforces:
                raise _refusal(request, decision, told or decision)
        # In the mode ``warn``, a logged refusal is allowed from now on.
        if place is not None:
            self._remember(place)

    def _remember(self, place: Hashable) -> None:
        if len(self._allowed) >= _MOST:
            self._allowed.clear()
        self._allowed.add(place)

    def _request(
        self, caller: Caller, right: str, arn: str, owner_id: str, about: Context
    ) -> PolicyRequest:
        context = {**self._everywhere(owner_id), **about, "aws:requestedregion": [caller.region]}
        if caller.origin is not None:
            is_secure = caller.origin.scheme == "https"
            context["aws:securetransport"] = ["true" if is_secure else "false"]
            if caller.origin.address:
                context["aws:sourceip"] = [caller.origin.address]
        if caller.agent:
            context["aws:useragent"] = [caller.agent]
        if caller.is_anonymous:
            return PolicyRequest(Principal(), right, arn, owner_id, context)
        session = caller.session
        user = caller.arn if session is not None else caller.role_arn or caller.arn
        # Only services have aws:SourceOwner. Otherwise the default policy of a topic would give
        # each key of its account rights that its own policy does not.
        context |= {
            "aws:principalaccount": [caller.account_id],
            "aws:principalarn": [caller.role_arn or user],
            "aws:principalisawsservice": ["false"],
            "aws:principaltype": ["AssumedRole" if caller.role_arn else "User"],
            "aws:username": [caller.user_name],
            "aws:viaawsservice": ["false"],
        }
        if session is not None and session.role:
            del context["aws:username"]
        named = (user, caller.role_arn) if caller.role_arn not in ("", user) else (user,)
        principal = Principal(caller.account_id, named)
        return PolicyRequest(principal, right, arn, owner_id, context)

    def _everywhere(self, owner_id: str) -> dict[str, Sequence[str]]:
        now = self._clock.of(owner_id).instant()
        return {
            "aws:currenttime": [now.isoformat()],
            "aws:epochtime": [str(int(now.timestamp()))],
            "aws:resourceaccount": [owner_id],
        }

    def takes_copies(self, queue: Queue, topic_arn: str) -> bool:
        """Return True if the queue's policy allows SNS to send messages of that topic."""
        text = queue.attributes.get("Policy")
        place = text, queue.arn, topic_arn
        if place in self._allowed:
            return True
        account_id = arns.parse(topic_arn).account_id
        context = {
            **self._everywhere(queue.account_id),
            "aws:principalisawsservice": ["true"],
            "aws:principalservicename": [_SNS],
            "aws:securetransport": ["true"],
            "aws:sourceaccount": [account_id],
            "aws:sourcearn": [topic_arn],
            "aws:sourceowner": [account_id],
            "aws:viaawsservice": ["false"],
        }
        principal = Principal(service=_SNS)
        request = PolicyRequest(principal, _SENDS, queue.arn, queue.account_id, context)
        known = self._known(PolicyKind.RESOURCE, text, queue.arn)
        decision = decide(request, resource=known.policy, identities=None)
        if not decision.is_allowed:
            self._log_refusal(request, decision, text)
            if self.enforces:
                return False
        if known.is_steady:
            self._remember(place)
        return True

    def _log_refusal(self, request: PolicyRequest, decision: Decision, documents: Hashable) -> None:
        """Log a refusal once for each caller, right and resource, and again when one of the
        policies has changed without allowing it."""
        who = _principal(request)
        cause = who, request.action, request.resource, *_source(request), hash(documents)
        if cause in self._logged:
            return
        if len(self._logged) >= _MOST:
            self._logged.clear()
        self._logged.add(cause)
        verb = "was refused" if self.enforces else "would be refused by AWS"
        source = "".join(f" of {one}" for one in _source(request))
        what = _reason(request, decision), _remedy(request, decision)
        _log.warning("%s%s %s: %s. %s", who, source, verb, *what)


def _refusal(request: PolicyRequest, decision: Decision, told: Decision) -> Rejected:
    text = f"User: {_principal(request)} is not authorized to perform: {_reason(request, told)}"
    is_of_topic = request.action.startswith("sns:")
    refusal = AuthorizationError(text) if is_of_topic else AccessDenied(text)
    statement = "" if decision.statement is None else _name_of(decision.statement)
    refusal.denied = Denied("policy", request.resource, statement)
    return refusal


def _compiled(text: str, kind: PolicyKind, of: str) -> _Compiled:
    """Compile a policy, and log once for each text which of its conditions are never met."""
    try:
        policy = parse(text, kind)
    except Malformed as error:
        _log.warning("The policy of %s allows and denies nothing: %s.", of, error)
        return _NONE
    # Texts that look like variables are variables. Nothing is escaped in our suggestions.
    words = orjson.dumps(orjson.loads(text)).decode().lower()
    return _Compiled(
        policy,
        not _has_any(words, _MOVING),
        _has_any(words, _OF_ORIGINS),
        "aws:useragent" in words,
        OF_TAGS in words,
    )


def _tagged(tags: Mapping[str, str]) -> Context:
    return {f"{OF_TAGS}{key.lower()}": [one] for key, one in tags.items()}


def _has_any(words: str, keys: Iterable[str]) -> bool:
    return any(key in words for key in keys)


def _source(request: PolicyRequest) -> Sequence[str]:
    return request.context.get("aws:sourcearn", ())


def _principal(request: PolicyRequest) -> str:
    principal = request.principal
    return principal.service or next(iter(principal.arns), "anonymous")


def _reason(request: PolicyRequest, decision: Decision) -> str:
    """Return the reason in AWS's words where they are known."""
    service, _, action = request.action.partition(":")
    named = f"SNS:{action}" if service == "sns" else request.action.lower()
    kind = _KINDS.get(decision.kind, "identity-based")
    if decision.reason is Reason.DENIED:
        reason = f"with an explicit deny in {'an' if kind[0] == 'i' else 'a'} {kind} policy"
    else:
        reason = f"because no {kind} policy allows the {named} action"
    return f"{named} on resource: {request.resource} {reason}"


def _name_of(statement: Statement) -> str:
    return statement.sid or f"number {statement.index + 1}"


def _remedy(request: PolicyRequest, decision: Decision) -> str:
    if decision.statement is not None:
        return f"The statement that denies it: {_name_of(decision.statement)}."
    if request.action in _OF_OWNERS and decision.kind is PolicyKind.RESOURCE:
        return "Only the owner of a queue may do this."
    assert decision.kind is not None
    statement = orjson.dumps(missing_statement(request, decision.kind)).decode()
    return f"Missing statement: {statement}"
