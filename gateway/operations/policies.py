"""What policies of queues and topics say to requests and deliveries (docs/contract/policies.md 5).

And those of keys: a key without one may do everything in its account. ``warn`` refuses nothing: it
says once for each cause what AWS would have refused, with the statement that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from queuegate.gateway.operations.policy_warnings import OF_TAGS
from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies import (
    Decision,
    Kind,
    Policy,
    Principal,
    Reason,
    Request,
    Statement,
    decide,
    missing_statement,
    parse,
)
from queuegate.protocol.policies.requests import Context
from queuegate.storage.errors import AccessDenied, AuthorizationError, Denied, Rejected

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.clock import Clock
    from queuegate.storage.model import Queue, Topic

_log = logging.getLogger("queuegate.policies")

OF_OWNERS: Final = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueues",
        "ListQueueTags",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
"""What no policy of a queue allows others ("Overview of managing access in Amazon SQS")."""
_OF_OWNERS = frozenset(f"sqs:{action}" for action in OF_OWNERS)
_SENDS: Final = "sqs:SendMessage"
_SNS: Final = "sns.amazonaws.com"
_MOST = 10_000
_KINDS: Mapping[Kind | None, str] = {Kind.RESOURCE: "resource-based", Kind.SESSION: "session"}
_UNSEEN = "It is not known from where this is asked."
_MOVING = ("aws:currenttime", "aws:epochtime", OF_TAGS)
"""Those that change from one request to the next."""
_OF_ORIGINS = ("aws:sourceip", "aws:securetransport")
_OF_AGENTS = ("aws:useragent",)


class _Compiled(NamedTuple):
    """The policy of a text."""

    policy: Policy
    is_steady: bool = True
    """What it allowed once it always allows: whoever asks from there."""
    asks_for_origin: bool = False
    asks_for_agent: bool = False
    asks_for_tags: bool = False


_NONE = _Compiled(Policy((), ()))
"""Of what has no policy."""


class _Texts:
    """Policies of one kind, compiled once."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._compiled: dict[str, _Compiled] = {}

    def known(self, text: str | None, of: str) -> _Compiled:
        """The policy of a text, which ``of`` has."""
        if text is None:
            return _NONE
        known = self._compiled.get(text)
        if known is None:
            known = _compiled(text, self._kind, of)
            if len(self._compiled) >= _MOST:
                self._compiled.clear()
            self._compiled[text] = known
        return known


class Everybody:
    """An ``Authority`` that leaves everything to policies."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Nothing is refused."""


class Policies:
    """Asked for each request and each copy of a message that goes to a queue."""

    def __init__(self, clock: Clock, *, enforces: bool) -> None:
        self._clock = clock
        self.enforces = enforces
        """Whether what they do not allow is refused."""
        self.asks_for_origins = False
        """Whether one that was asked wanted to know from where a request comes."""
        self._of_resources = _Texts(Kind.RESOURCE)
        self._of_keys = _Texts(Kind.IDENTITY)
        self._allowed: set[Hashable] = set()
        """What was let through, and will be as long as policies and callers are the same."""
        self._told: set[Hashable] = set()
        self.policy_of: Callable[[Caller], str | None] = lambda _: None
        """The policy of a caller's key; None: it may do everything in its account."""

    def check(
        self, caller: Caller, right: str, resource: Queue | Topic, about: Context | None = None
    ) -> None:
        """Raise AccessDenied, of a topic AuthorizationError, unless the caller may. ``about`` has
        the condition keys that only this action has."""
        if caller.is_administrator:
            return
        if caller.session is not None:
            self._check_session(caller, right, resource.arn, resource.account_id, resource.tags)
        text = resource.attributes.get("Policy")
        is_own = caller.account_id == resource.account_id and not caller.is_anonymous
        given = None if caller.is_anonymous else self.policy_of(caller)
        if is_own and text is None and given is None:
            return
        known = self._of_resources.known(text, resource.arn)
        if is_own and given is None and not known.policy.denying:
            return
        if not is_own and right in _OF_OWNERS:
            known = _NONE
        own = self._of_keys.known(given, caller.user_name)
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
        if not is_own and decision[:2] != (Reason.NOT_ALLOWED, Kind.IDENTITY):
            plain = self._request(caller, right, resource.arn, resource.account_id, {})
            told = decide(plain, resource=None, identities=identities)
        self._conclude(request, decision, place, (text, given), told)

    def check_key(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AccessDenied, of SNS AuthorizationError, unless the caller's key may do this with
        what has no policy of its own, or is not there."""
        if caller.session is not None:
            self._check_session(caller, right, arn, caller.account_id)
        given = None if caller.is_administrator else self.policy_of(caller)
        if given is None or caller.is_anonymous:
            return
        own = self._of_keys.known(given, caller.user_name)
        who = self._asking(caller, _NONE, own)
        place: Hashable = (None, given, arn, right, who) if own.is_steady else None
        if place in self._allowed:
            return
        request = self._request(caller, right, arn, caller.account_id, {})
        decision = decide(request, resource=None, identities=(own.policy,))
        self._conclude(request, decision, place, (given,))

    def check_absent(self, caller: Caller, right: str, arn: str, owner_id: str) -> None:
        """Raise what ``check`` raises of a queue or topic that has no policy, so that no other
        account learns which names there are. In the caller's account its key decides."""
        if caller.is_administrator or not self.enforces or owner_id == caller.account_id:
            self.check_key(caller, right, arn)
            return
        if caller.session is not None:
            self._check_session(caller, right, arn, owner_id)
        given = None if caller.is_anonymous else self.policy_of(caller)
        own = self._of_keys.known(given, caller.user_name)
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
        """Raise the same unless each policy of the caller's session allows it: what the key and
        the resource allow is not enough."""
        assert caller.session is not None
        for text in caller.session.policies:
            own = self._of_keys.known(text, caller.user_name)
            who = self._asking(caller, _NONE, own)
            place: Hashable = ("session", text, arn, right, who) if own.is_steady else None
            if place in self._allowed:
                continue
            request = self._request(caller, right, arn, owner_id, _tagged(tags or {}))
            asked = request._replace(owner_id=caller.account_id)
            decision = decide(asked, resource=None, identities=(own.policy,))
            self._conclude(request, decision._replace(kind=Kind.SESSION), place, (text,))

    def _asking(self, caller: Caller, known: _Compiled, own: _Compiled) -> Hashable:
        """What these policies want to know of who asks. Raises AccessDenied where nobody looked."""
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
        request: Request,
        decision: Decision,
        place: Hashable,
        documents: Hashable,
        told: Decision | None = None,
    ) -> None:
        """``told``: what the caller is told was decided; None: what was."""
        if not decision.is_allowed:
            self._tell(request, decision, documents)
            if self.enforces:
                raise _refusal(request, decision, told or decision)
        # What was told and not refused is let through from now on, too.
        if place is not None:
            self._remember(place)

    def _remember(self, place: Hashable) -> None:
        if len(self._allowed) >= _MOST:
            self._allowed.clear()
        self._allowed.add(place)

    def _request(
        self, caller: Caller, right: str, arn: str, owner_id: str, about: Context
    ) -> Request:
        context = {**self._everywhere(owner_id), **about, "aws:requestedregion": [caller.region]}
        if caller.origin is not None:
            is_secure = caller.origin.scheme == "https"
            context["aws:securetransport"] = ["true" if is_secure else "false"]
            if caller.origin.address:
                context["aws:sourceip"] = [caller.origin.address]
        if caller.agent:
            context["aws:useragent"] = [caller.agent]
        if caller.is_anonymous:
            return Request(Principal(), right, arn, owner_id, context)
        session = caller.session
        user = caller.arn if session is not None else caller.role_arn or caller.arn
        # aws:SourceOwner is of services alone: or the policy that a topic has from the start would
        # give each key of its account what its own policy does not.
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
        return Request(principal, right, arn, owner_id, context)

    def _everywhere(self, owner_id: str) -> dict[str, Sequence[str]]:
        now = self._clock.of(owner_id).instant()
        return {
            "aws:currenttime": [now.isoformat()],
            "aws:epochtime": [str(int(now.timestamp()))],
            "aws:resourceaccount": [owner_id],
        }

    def takes_copies(self, queue: Queue, topic_arn: str) -> bool:
        """Whether the queue's policy lets SNS send to it what is of that topic."""
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
        request = Request(principal, _SENDS, queue.arn, queue.account_id, context)
        known = self._of_resources.known(text, queue.arn)
        decision = decide(request, resource=known.policy, identities=None)
        if not decision.is_allowed:
            self._tell(request, decision, text)
            if self.enforces:
                return False
        if known.is_steady:
            self._remember(place)
        return True

    def _tell(self, request: Request, decision: Decision, documents: Hashable) -> None:
        """Say what is refused, once for each who, what and where, and again when a policy of those
        that were asked is another one and does not help."""
        who = _who(request)
        cause = who, request.action, request.resource, *_source(request), hash(documents)
        if cause in self._told:
            return
        if len(self._told) >= _MOST:
            self._told.clear()
        self._told.add(cause)
        verb = "was refused" if self.enforces else "would be refused by AWS"
        source = "".join(f" of {one}" for one in _source(request))
        _log.warning(
            "%s%s %s: %s. %s",
            who,
            source,
            verb,
            _why(request, decision),
            _way_out(request, decision),
        )


def _refusal(request: Request, decision: Decision, told: Decision) -> Rejected:
    text = f"User: {_who(request)} is not authorized to perform: {_why(request, told)}"
    is_of_topic = request.action.startswith("sns:")
    refusal = AuthorizationError(text) if is_of_topic else AccessDenied(text)
    statement = "" if decision.statement is None else _name_of(decision.statement)
    refusal.denied = Denied("policy", request.resource, statement)
    return refusal


def _compiled(text: str, kind: Kind, of: str) -> _Compiled:
    """Say what of it cannot be asked, once for each text."""
    try:
        policy = parse(text, kind)
    except Malformed as error:
        _log.warning("The policy of %s allows and denies nothing: %s.", of, error)
        return _NONE
    # Variables name keys, too: whatever looks like one is one. Nothing is escaped in what we write.
    words = orjson.dumps(orjson.loads(text)).decode().lower()
    return _Compiled(
        policy,
        not _has_any(words, _MOVING),
        _has_any(words, _OF_ORIGINS),
        _has_any(words, _OF_AGENTS),
        OF_TAGS in words,
    )


def _tagged(tags: Mapping[str, str]) -> Context:
    return {f"{OF_TAGS}{key.lower()}": [one] for key, one in tags.items()}


def _has_any(words: str, keys: Iterable[str]) -> bool:
    return any(key in words for key in keys)


def _source(request: Request) -> Sequence[str]:
    return request.context.get("aws:sourcearn", ())


def _who(request: Request) -> str:
    principal = request.principal
    return principal.service or next(iter(principal.arns), "anonymous")


def _why(request: Request, decision: Decision) -> str:
    """In AWS's words, as far as they are known."""
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


def _way_out(request: Request, decision: Decision) -> str:
    if decision.statement is not None:
        return f"The statement that denies it: {_name_of(decision.statement)}."
    if request.action in _OF_OWNERS and decision.kind is Kind.RESOURCE:
        return "Only the owner of a queue may do this."
    assert decision.kind is not None
    statement = orjson.dumps(missing_statement(request, decision.kind)).decode()
    return f"Missing statement: {statement}"
