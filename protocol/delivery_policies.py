"""Delivery policies of topics and HTTP(S) subscriptions: retries, their delays, throttling and
content type (docs/contract/sns.md 3.6).

A policy is stored as the text that `parse_topic` or `parse_subscription` returns: keys in AWS's
order, without absent sections. The other functions read such texts. Retries pass through four
phases: without delay, with the minimum delay, with rising delays, with the maximum delay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from queuegate.protocol.malformed import Malformed


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A `healthyRetryPolicy`, its fields in AWS's order. Delays are seconds."""

    min_delay_target: int = 20
    max_delay_target: int = 20
    num_retries: int = 3
    num_max_delay_retries: int = 0
    num_no_delay_retries: int = 0
    num_min_delay_retries: int = 0
    backoff_function: str = "linear"

    @property
    def num_backoff_retries(self) -> int:
        """Return the number of retries in the phase between minimum and maximum."""
        others = self.num_no_delay_retries + self.num_min_delay_retries
        return self.num_retries - others - self.num_max_delay_retries

    def delay(self, retry: int) -> float:
        """Return the seconds before this retry, from 1 to num_retries."""
        position = retry - 1 - self.num_no_delay_retries
        if position < 0:
            return 0.0
        position -= self.num_min_delay_retries
        last = self.num_backoff_retries - 1
        if position < 0 or position == 0 <= last:
            return float(self.min_delay_target)
        if position >= last:
            return float(self.max_delay_target)
        delay = BACKOFF_FUNCTIONS[self.backoff_function](self, position, last)
        # Powers of fractions may miss the bounds by a rounding error.
        return min(max(delay, float(self.min_delay_target)), float(self.max_delay_target))


def _between(policy: RetryPolicy, fraction: float) -> float:
    return policy.min_delay_target + fraction * (policy.max_delay_target - policy.min_delay_target)


BACKOFF_FUNCTIONS: Final[dict[str, Callable[[RetryPolicy, int, int], float]]] = {
    "linear": lambda policy, position, last: _between(policy, position / last),
    # Each step grows by the same time.
    "arithmetic": lambda policy, position, last: _between(
        policy, position * (position + 1) / (last * (last + 1))
    ),
    # Each delay is multiplied by the same factor.
    "geometric": lambda policy, position, last: float(
        policy.min_delay_target
        * (policy.max_delay_target / policy.min_delay_target) ** (position / last)
    ),
    # Each step doubles.
    "exponential": lambda policy, position, last: _between(
        policy, (2.0**position - 1) / (2.0**last - 1)
    ),
}
"""AWS names the functions and draws them, but publishes no formula. Each takes the position of a
retry within its phase and the last position; only positions between the ends are passed."""


LONGEST_DELAY_SECONDS: Final = 3600
MOST_RETRIES: Final = 100
LONGEST_RETRYING_SECONDS: Final = 3600
"""Maximum sum of the delays of one delivery, whatever its policy says."""
DEFAULT_CONTENT_TYPE: Final = "text/plain; charset=UTF-8"
EVENT_DELAYS_SECONDS: Final = (10.0, 30.0, 60.0, 300.0)
"""Default delays for a subscription to events, if neither it nor its topic has a policy
(docs/seeds.md 1.3): five attempts in all."""
JSON_CONTENT_TYPE: Final = "application/json"
"""Content type of raw deliveries of events, whose messages are JSON."""
JITTER_FRACTION: Final = 0.1

_LONGEST_TEXT = 10_000
_MOST_PER_SECOND = 2**31 - 1
_KEY = re.compile(r"\w{1,64}", re.ASCII)

# What the developer guide ("Creating an HTTP/S delivery policy") allows with raw delivery. It
# allows only the first two otherwise, but AWS was recorded to take others then, too.
CONTENT_TYPES: Final = (
    "application/json",
    "text/plain",
    "application/atom+xml",
    "application/octet-stream",
    "application/soap+xml",
    "application/x-www-form-urlencoded",
    "application/xhtml+xml",
    "application/xml",
    "text/css",
    "text/csv",
    "text/html",
    "text/xml",
)
_CONTENT_TYPE = re.compile(
    rf"({'|'.join(map(re.escape, CONTENT_TYPES))})( ?; ?charset=[\w-]{{1,40}})?",
    re.ASCII | re.IGNORECASE,
)

_Section = dict[str, Any]
_Parser = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The policies of a subscription and its topic, as a worker needs them."""

    delays: tuple[float, ...]
    """Seconds before each retry, as long as their sum is at most an hour."""
    max_receives_per_second: int | None
    content_type: str
    raw_content_type: str

    def delay_before_retry(self, number: int, random_fraction: float = 0.0) -> float | None:
        """Return the seconds before retry `number`, which starts with 1; None: there is no such
        retry. A random fraction from 0 to 1 makes the delay longer by up to a tenth, which spreads
        deliveries that failed together. A retry without delay keeps none."""
        if not 1 <= number <= len(self.delays):
            return None
        return self.delays[number - 1] * (1 + JITTER_FRACTION * random_fraction)


def parse_topic(text: str) -> str:
    """Return the DeliveryPolicy of a topic as it is stored and read back: the given members and
    disableSubscriptionOverrides (docs/contract/sns.md 3.6). "" stays "": it removes the policy.
    Raises Malformed, with a text that starts with the name of the attribute, if the policy breaks a
    rule."""
    return _written(_topic(_loaded(text))) if text else ""


def parse_subscription(text: str) -> str:
    """Return the DeliveryPolicy of a subscription as it is stored and read back: every section,
    null if absent. "" and Malformed as for a topic."""
    return _written(_subscription(_loaded(text))) if text else ""


def effective_topic(stored: str | None) -> str:
    """Return the EffectiveDeliveryPolicy of a topic with this policy or none."""
    return _written({"http": _effective_topic(stored)})


def effective_subscription(
    topic_stored: str | None,
    subscription_stored: str | None,
    *,
    gets_events: bool = False,
    is_raw: bool = False,
) -> str:
    """Return the EffectiveDeliveryPolicy of a subscription: each section from the subscription,
    else the topic, else the default. A topic may disable its subscriptions' policies.
    ``gets_events`` selects the defaults for events. AWS has no function for their delays, so the
    nearest one is shown."""
    default = _DEFAULT
    if gets_events:
        default = _Default(_EVENT_RETRY, _JSON_REQUEST if is_raw else _DEFAULT_REQUEST)
    return _written(_effective_subscription(topic_stored, subscription_stored, default))


@lru_cache(maxsize=512)
def plan(
    topic_stored: str | None, subscription_stored: str | None, *, gets_events: bool = False
) -> DeliveryPlan:
    """Return the delivery plan for such a subscription; ``gets_events`` as above."""
    default = _Default(_EVENT_RETRY, _DEFAULT_REQUEST) if gets_events else _DEFAULT
    effective = _effective_subscription(topic_stored, subscription_stored, default)
    throttle, request = effective["throttlePolicy"], effective["requestPolicy"]
    content_type = request["headerContentType"]
    is_default = request is _DEFAULT_REQUEST
    return DeliveryPlan(
        _delays(effective["healthyRetryPolicy"]),
        throttle["maxReceivesPerSecond"] if throttle else None,
        content_type,
        JSON_CONTENT_TYPE if gets_events and is_default else content_type,
    )


def _delays(section: _Section) -> tuple[float, ...]:
    if section is _EVENT_RETRY:
        return EVENT_DELAYS_SECONDS
    retry = RetryPolicy(**{_FIELDS[key]: value for key, value in section.items()})
    delays: list[float] = []
    total = 0.0
    for number in range(1, retry.num_retries + 1):
        delay = retry.delay(number)
        total += delay
        if total > LONGEST_RETRYING_SECONDS:
            break
        delays.append(delay)
    return tuple(delays)


class _Default(NamedTuple):
    """The defaults without policies of subscription and topic."""

    retry: _Section
    request: _Section


def _effective_topic(stored: str | None, default: _Default | None = None) -> _Section:
    default = default or _DEFAULT
    http = _topic(_loaded(stored)).get("http", {}) if stored else {}
    retry = http.get("defaultHealthyRetryPolicy")
    effective = {
        "defaultHealthyRetryPolicy": default.retry if retry is None else _filled(retry),
        "disableSubscriptionOverrides": http.get("disableSubscriptionOverrides", False),
    }
    if "defaultThrottlePolicy" in http:
        effective["defaultThrottlePolicy"] = http["defaultThrottlePolicy"]
    effective["defaultRequestPolicy"] = http.get("defaultRequestPolicy") or default.request
    return effective


def _effective_subscription(
    topic_stored: str | None, subscription_stored: str | None, default: _Default
) -> _Section:
    topic = _effective_topic(topic_stored, default)
    own: Mapping[str, Any] = {}
    if subscription_stored and not topic["disableSubscriptionOverrides"]:
        own = _subscription(_loaded(subscription_stored))
    return {
        "healthyRetryPolicy": own.get("healthyRetryPolicy") or topic["defaultHealthyRetryPolicy"],
        "sicklyRetryPolicy": own.get("sicklyRetryPolicy"),
        "throttlePolicy": own.get("throttlePolicy") or topic.get("defaultThrottlePolicy"),
        "requestPolicy": own.get("requestPolicy") or topic["defaultRequestPolicy"],
        "guaranteed": own.get("guaranteed", False),
    }


def _loaded(text: str) -> Any:
    if len(text) > _LONGEST_TEXT:
        raise Malformed(f"DeliveryPolicy: longer than {_LONGEST_TEXT} characters")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Malformed("DeliveryPolicy: failed to parse JSON.") from None


def _written(policy: _Section) -> str:
    return orjson.dumps(policy).decode()


def _topic(value: Any) -> _Section:
    policy = _members(value, "", {"http": _topic_http})
    return {name: section for name, section in policy.items() if section is not None}


def _topic_http(value: Any, where: str) -> _Section:
    parsers = {
        "defaultHealthyRetryPolicy": _given_retry_policy,
        "disableSubscriptionOverrides": _boolean,
        "defaultThrottlePolicy": _throttle_policy,
        "defaultRequestPolicy": _request_policy,
    }
    sections = _members(value, where, parsers)
    sections["disableSubscriptionOverrides"] = bool(sections["disableSubscriptionOverrides"])
    return {name: section for name, section in sections.items() if section is not None}


def _subscription(value: Any) -> _Section:
    # AWS accepts sicklyRetryPolicy and guaranteed without a documented effect, and so does
    # Queuegate.
    parsers = {
        "healthyRetryPolicy": _retry_policy,
        "sicklyRetryPolicy": _retry_policy,
        "throttlePolicy": _throttle_policy,
        "requestPolicy": _request_policy,
        "guaranteed": _boolean,
    }
    sections = _members(value, "", parsers)
    return sections | {"guaranteed": bool(sections["guaranteed"])}


def _members(value: Any, where: str, parsers: Mapping[str, _Parser]) -> _Section:
    """Return every possible member in the order of `parsers`; None for an absent one."""
    if not isinstance(value, dict):
        raise _refusal(where, "must be a JSON object")
    for key in value:
        if key not in parsers:
            name = key if _KEY.fullmatch(key) else "of this name"
            raise _refusal(where, f"has no member {name}")
    inner = where + "." if where else ""
    return {
        key: None if value.get(key) is None else parse(value[key], inner + key)
        for key, parse in parsers.items()
    }


def _retry_policy(value: Any, where: str) -> _Section:
    return _filled(_given_retry_policy(value, where))


def _given_retry_policy(value: Any, where: str) -> _Section:
    """Return the present members, which must be valid together with the defaults of the others."""
    parsers = {
        "minDelayTarget": _number(1, LONGEST_DELAY_SECONDS),
        "maxDelayTarget": _number(1, LONGEST_DELAY_SECONDS),
        "numRetries": _number(0, MOST_RETRIES),
        "numMaxDelayRetries": _number(0, MOST_RETRIES),
        "numNoDelayRetries": _number(0, MOST_RETRIES),
        "numMinDelayRetries": _number(0, MOST_RETRIES),
        "backoffFunction": _backoff_function,
    }
    members = _members(value, where, parsers)
    given = {key: item for key, item in members.items() if item is not None}
    policy = _with_defaults(given)
    if policy.min_delay_target > policy.max_delay_target:
        raise _refusal(where, "has a minDelayTarget greater than its maxDelayTarget")
    if policy.num_backoff_retries < 0:
        raise _refusal(
            where,
            "has more numNoDelayRetries, numMinDelayRetries and numMaxDelayRetries together than "
            "numRetries",
        )
    return given


def _filled(given: _Section) -> _Section:
    return _as_section(_with_defaults(given))


def _with_defaults(given: Mapping[str, Any]) -> RetryPolicy:
    """Add defaults. An absent delay is the default, or the given delay if that lies beyond it."""
    policy = replace(RetryPolicy(), **{_FIELDS[key]: item for key, item in given.items()})
    low, high = policy.min_delay_target, policy.max_delay_target
    if low > high and "maxDelayTarget" not in given:
        return replace(policy, max_delay_target=low)
    if low > high and "minDelayTarget" not in given:
        return replace(policy, min_delay_target=high)
    return policy


def _section_of(name: str, parse: _Parser) -> _Parser:
    """Return a parser of a section with one member; None without it."""

    def section(value: Any, where: str) -> _Section | None:
        given = _members(value, where, {name: parse})
        return None if given[name] is None else given

    return section


def _number(low: int, high: int) -> _Parser:
    def parse(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refusal(where, "must be a whole number")
        if value < low:
            raise _refusal(where, f"must be greater than or equal to {low}")
        if value > high:
            raise _refusal(where, f"must be less than or equal to {high}")
        return value

    return parse


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _refusal(where, "must be true or false")
    return value


def _backoff_function(value: Any, where: str) -> str:
    if not isinstance(value, str) or value not in BACKOFF_FUNCTIONS:
        raise _refusal(where, f"must be one of {', '.join(BACKOFF_FUNCTIONS)}")
    return value


def _content_type(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _CONTENT_TYPE.fullmatch(value):
        raise _refusal(where, f"must be one of {', '.join(sorted(CONTENT_TYPES))}")
    return value


_throttle_policy = _section_of("maxReceivesPerSecond", _number(1, _MOST_PER_SECOND))
_request_policy = _section_of("headerContentType", _content_type)


def _refusal(where: str, what: str) -> Malformed:
    return Malformed(f"DeliveryPolicy: {where} {what}" if where else f"DeliveryPolicy: {what}")


_FIELDS: Final = {
    re.sub("_([a-z])", lambda found: found[1].upper(), one.name): one.name
    for one in fields(RetryPolicy)
}


def _as_section(policy: RetryPolicy) -> _Section:
    return {key: getattr(policy, field) for key, field in _FIELDS.items()}


_DEFAULT_RETRY: Final = _as_section(RetryPolicy())
_DEFAULT_REQUEST: Final = {"headerContentType": DEFAULT_CONTENT_TYPE}
_DEFAULT: Final = _Default(_DEFAULT_RETRY, _DEFAULT_REQUEST)
_EVENT_RETRY: Final = _as_section(
    RetryPolicy(10, 300, len(EVENT_DELAYS_SECONDS), backoff_function="geometric")
)
_JSON_REQUEST: Final = {"headerContentType": JSON_CONTENT_TYPE}
