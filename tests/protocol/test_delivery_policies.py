import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import delivery_policies
from queuegate.protocol.delivery_policies import (
    BACKOFF_FUNCTIONS,
    CONTENT_TYPES,
    RetryPolicy,
    parse_subscription,
    parse_topic,
    plan,
)
from queuegate.protocol.malformed import Malformed

DEFAULT_RETRY = (
    '{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":3,"numMaxDelayRetries":0,'
    '"numNoDelayRetries":0,"numMinDelayRetries":0,"backoffFunction":"linear"}'
)
SLOW_RETRY = DEFAULT_RETRY.replace("20", "60")
DEFAULT_REQUEST = '{"headerContentType":"text/plain; charset=UTF-8"}'
EFFECTIVE_TOPIC = (
    f'{{"http":{{"defaultHealthyRetryPolicy":{DEFAULT_RETRY},"disableSubscriptionOverrides":false,'
    f'"defaultRequestPolicy":{DEFAULT_REQUEST}}}}}'
)

OVERRIDABLE = '{"http":{"disableSubscriptionOverrides":false}}'


def subscription_text(
    healthy: str = "null", throttle: str = "null", request: str = "null", guaranteed: str = "false"
) -> str:
    return (
        f'{{"healthyRetryPolicy":{healthy},"sicklyRetryPolicy":null,"throttlePolicy":{throttle},'
        f'"requestPolicy":{request},"guaranteed":{guaranteed}}}'
    )


def of_topic(**sections: Any) -> str:
    return parse_topic(json.dumps({"http": sections}))


def of_subscription(**sections: Any) -> str:
    return parse_subscription(json.dumps(sections))


def refusal_of_topic(policy: Any) -> str:
    with pytest.raises(Malformed) as caught:
        parse_topic(policy if isinstance(policy, str) else json.dumps(policy))
    return str(caught.value).removeprefix("DeliveryPolicy: ")


def refusal_of_retry(**fields: Any) -> str:
    with pytest.raises(Malformed) as caught:
        of_subscription(healthyRetryPolicy=fields)
    return str(caught.value).removeprefix("DeliveryPolicy: healthyRetryPolicy").lstrip(". ")


# Stored texts


def test_an_empty_text_unsets() -> None:
    assert parse_topic("") == parse_subscription("") == ""


def test_the_stored_text_has_the_order_of_aws() -> None:
    fields = list(json.loads(DEFAULT_RETRY).items())
    for shuffled in (fields, fields[::-1]):
        sections = {
            "defaultRequestPolicy": {"headerContentType": "text/csv"},
            "defaultThrottlePolicy": {"maxReceivesPerSecond": 7},
            "disableSubscriptionOverrides": True,
            "defaultHealthyRetryPolicy": dict(shuffled),
        }
        assert of_topic(**sections) == (
            f'{{"http":{{"defaultHealthyRetryPolicy":{DEFAULT_RETRY},'
            '"disableSubscriptionOverrides":true,"defaultThrottlePolicy":{"maxReceivesPerSecond":7}'
            ',"defaultRequestPolicy":{"headerContentType":"text/csv"}}}'
        )


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        # Recorded (docs/contract/sns.md 3.6).
        ('{"http":{"defaultHealthyRetryPolicy":null}}', OVERRIDABLE),
        ('{"http":{}}', OVERRIDABLE),
        ("{}", "{}"),
        ('{"http":null}', "{}"),
        (
            ' {"http" : {"defaultThrottlePolicy" : null, "defaultHealthyRetryPolicy" : null} } ',
            OVERRIDABLE,
        ),
        ('{"http":{"defaultThrottlePolicy":{},"defaultRequestPolicy":{}}}', OVERRIDABLE),
        (
            '{"http":{"defaultHealthyRetryPolicy":{"numRetries":9,"minDelayTarget":5,'
            '"maxDelayTarget":null}}}',
            '{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":5,"numRetries":9},'
            '"disableSubscriptionOverrides":false}}',
        ),
        (
            '{"http":{"defaultRequestPolicy":{"headerContentType":"application/json"}}}',
            '{"http":{"disableSubscriptionOverrides":false,"defaultRequestPolicy":'
            '{"headerContentType":"application/json"}}}',
        ),
    ],
)
def test_what_a_topic_was_not_given_stays_missing(given_text: str, stored: str) -> None:
    assert parse_topic(given_text) == stored


def test_sections_that_a_subscription_lacks_are_null() -> None:
    assert parse_subscription("{}") == subscription_text()
    throttled = of_subscription(throttlePolicy={"maxReceivesPerSecond": 1})
    assert throttled == subscription_text(throttle='{"maxReceivesPerSecond":1}')
    assert parse_subscription(subscription_text(guaranteed="true")).endswith('"guaranteed":true}')
    assert of_subscription(guaranteed=None, requestPolicy={}) == subscription_text()


def test_fields_that_a_retry_policy_lacks_are_filled() -> None:
    assert of_subscription(healthyRetryPolicy={}) == subscription_text(DEFAULT_RETRY)
    slow = {"minDelayTarget": 60}
    assert of_subscription(healthyRetryPolicy=slow) == subscription_text(SLOW_RETRY)
    [quick] = [json.loads(of_subscription(healthyRetryPolicy={"maxDelayTarget": 5}))]
    assert quick["healthyRetryPolicy"]["minDelayTarget"] == 5
    nulls = dict.fromkeys(json.loads(DEFAULT_RETRY))
    assert of_subscription(healthyRetryPolicy=nulls) == subscription_text(DEFAULT_RETRY)


# Refusals


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"numRetries": 101}, "numRetries must be less than or equal to 100"),
        ({"numRetries": -1}, "numRetries must be greater than or equal to 0"),
        ({"numRetries": 10**30}, "numRetries must be a whole number"),
        ({"numRetries": 2**63}, "numRetries must be less than or equal to 100"),
        ({"numRetries": "3"}, "numRetries must be a whole number"),
        ({"numRetries": 3.5}, "numRetries must be a whole number"),
        ({"numRetries": True}, "numRetries must be a whole number"),
        ({"numRetries": [3]}, "numRetries must be a whole number"),
        ({"minDelayTarget": 0}, "minDelayTarget must be greater than or equal to 1"),
        ({"maxDelayTarget": 0}, "maxDelayTarget must be greater than or equal to 1"),
        ({"maxDelayTarget": 3601}, "maxDelayTarget must be less than or equal to 3600"),
        (
            {"minDelayTarget": 11, "maxDelayTarget": 10},
            "has a minDelayTarget greater than its maxDelayTarget",
        ),
        ({"numNoDelayRetries": -1}, "numNoDelayRetries must be greater than or equal to 0"),
        (
            {
                "numRetries": 5,
                "numNoDelayRetries": 2,
                "numMinDelayRetries": 2,
                "numMaxDelayRetries": 2,
            },
            "has more numNoDelayRetries, numMinDelayRetries and numMaxDelayRetries together than "
            "numRetries",
        ),
        (
            {"backoffFunction": "cubic"},
            "backoffFunction must be one of linear, arithmetic, geometric, exponential",
        ),
        (
            {"backoffFunction": {}},
            "backoffFunction must be one of linear, arithmetic, geometric, exponential",
        ),
        ({"retries": 1}, "has no member retries"),
        ({"a b\n": 1}, "has no member of this name"),
        ({"x" * 9000: 1}, "has no member of this name"),
    ],
)
def test_a_retry_policy_is_refused(fields: dict[str, Any], text: str) -> None:
    assert refusal_of_retry(**fields) == text


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("not JSON", "failed to parse JSON."),
        ("{", "failed to parse JSON."),
        ("NaN", "failed to parse JSON."),
        ('{"http":NaN}', "failed to parse JSON."),
        ('{"http":"\ud800"}', "failed to parse JSON."),
        ("[" * 9000, "failed to parse JSON."),
        (" " * 10_001, "longer than 10000 characters"),
        ("[" * 200_000, "longer than 10000 characters"),
        ([], "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("7", "must be a JSON object"),
        ({"https": {}}, "has no member https"),
        ({"http": []}, "http must be a JSON object"),
        ({"http": {"healthyRetryPolicy": {}}}, "http has no member healthyRetryPolicy"),
        (
            {"http": {"defaultHealthyRetryPolicy": "x"}},
            "http.defaultHealthyRetryPolicy must be a JSON object",
        ),
        (
            {"http": {"disableSubscriptionOverrides": "true"}},
            "http.disableSubscriptionOverrides must be true or false",
        ),
        (
            {"http": {"defaultThrottlePolicy": {"maxReceivesPerSecond": 0}}},
            "http.defaultThrottlePolicy.maxReceivesPerSecond must be greater than or equal to 1",
        ),
    ],
)
def test_a_topic_policy_is_refused(policy: Any, text: str) -> None:
    assert refusal_of_topic(policy) == text


@pytest.mark.parametrize(
    "content_type", ["text/bogus", "", "text/plain\r\nX: y", "text/plain; q=1", 7, ["text/plain"]]
)
def test_other_content_types_are_refused(content_type: Any) -> None:
    policy = {"http": {"defaultRequestPolicy": {"headerContentType": content_type}}}
    assert refusal_of_topic(policy).startswith(
        "http.defaultRequestPolicy.headerContentType must be one of application/atom+xml, "
    )


@pytest.mark.parametrize("content_type", [*CONTENT_TYPES, "text/plain; charset=UTF-8"])
def test_content_types_of_the_guide_are_taken(content_type: str) -> None:
    stored = of_subscription(requestPolicy={"headerContentType": content_type})
    assert plan(None, stored).content_type == content_type


# Effective policies


def test_the_effective_policy_of_a_topic_fills_defaults() -> None:
    for stored in (None, "", "{}", '{"http":{}}'):
        assert delivery_policies.effective_topic(stored) == EFFECTIVE_TOPIC
    stored = of_topic(defaultThrottlePolicy={"maxReceivesPerSecond": 4})
    assert delivery_policies.effective_topic(stored) == EFFECTIVE_TOPIC.replace(
        "false,", 'false,"defaultThrottlePolicy":{"maxReceivesPerSecond":4},'
    )


def test_the_effective_policy_of_a_subscription_goes_section_by_section() -> None:
    def effective(topic: str | None, subscription: str | None) -> str:
        return delivery_policies.effective_subscription(topic, subscription)

    defaults = subscription_text(DEFAULT_RETRY, request=DEFAULT_REQUEST)
    for nothing in (None, "", parse_subscription("{}")):
        assert effective(None, nothing) == defaults
    topic = of_topic(
        defaultHealthyRetryPolicy={"minDelayTarget": 60},
        defaultThrottlePolicy={"maxReceivesPerSecond": 4},
    )
    throttle = '{"maxReceivesPerSecond":4}'
    assert effective(topic, None) == subscription_text(SLOW_RETRY, throttle, DEFAULT_REQUEST)
    own = of_subscription(
        throttlePolicy={"maxReceivesPerSecond": 9}, requestPolicy={"headerContentType": "text/csv"}
    )
    assert effective(topic, own) == subscription_text(
        SLOW_RETRY, '{"maxReceivesPerSecond":9}', '{"headerContentType":"text/csv"}'
    )
    rigid = of_topic(disableSubscriptionOverrides=True)
    assert effective(rigid, own) == defaults


def test_a_native_subscription_has_defaults_of_its_own() -> None:
    """10, 30, 60, 300 seconds, five attempts (docs/seeds.md 1.3)."""
    native = delivery_policies.plan(None, None, gets_events=True)
    assert native.delays == (10.0, 30.0, 60.0, 300.0)
    assert (native.content_type, native.raw_content_type) == (
        "text/plain; charset=UTF-8",
        "application/json",
    )
    sns = plan(None, None)
    assert (sns.delays, sns.raw_content_type) == ((20.0, 20.0, 20.0), sns.content_type)
    own = of_subscription(healthyRetryPolicy={"numRetries": 1}, requestPolicy=None)
    assert delivery_policies.plan(None, own, gets_events=True).delays == (20.0,)
    request = {"headerContentType": "text/plain; charset=UTF-8"}
    same = delivery_policies.plan(None, of_subscription(requestPolicy=request), gets_events=True)
    assert same.raw_content_type == "text/plain; charset=UTF-8"
    assert same.delays == native.delays
    of_a_topic = of_topic(defaultHealthyRetryPolicy={"minDelayTarget": 60, "numRetries": 2})
    assert delivery_policies.plan(of_a_topic, None, gets_events=True).delays == (60.0, 60.0)


def test_the_effective_policy_of_a_native_subscription_comes_near() -> None:
    """AWS's form has no function with these delays: the geometric one is off by a few seconds."""
    for is_raw, content_type in ((True, "application/json"), (False, "text/plain; charset=UTF-8")):
        text = delivery_policies.effective_subscription(None, None, gets_events=True, is_raw=is_raw)
        shown = json.loads(text)
        assert shown["requestPolicy"] == {"headerContentType": content_type}
        section = {"healthyRetryPolicy": shown["healthyRetryPolicy"]}
        delays = plan(None, of_subscription(**section)).delays
        assert [round(delay) for delay in delays] == [10, 31, 97, 300]


def test_a_topic_can_disable_what_its_subscriptions_say() -> None:
    own = of_subscription(
        healthyRetryPolicy={"numRetries": 9}, throttlePolicy={"maxReceivesPerSecond": 9}
    )
    free, rigid = plan(None, own), plan(of_topic(disableSubscriptionOverrides=True), own)
    assert (len(free.delays), free.max_receives_per_second) == (9, 9)
    assert (len(rigid.delays), rigid.max_receives_per_second) == (3, None)


# Plans


def test_by_default_there_are_three_retries_twenty_seconds_apart() -> None:
    default = plan(None, None)
    assert [default.delay_before_retry(number) for number in range(6)] == [
        None,
        20.0,
        20.0,
        20.0,
        None,
        None,
    ]
    assert default.content_type == "text/plain; charset=UTF-8"
    assert default.max_receives_per_second is None


def test_phases_follow_each_other() -> None:
    stored = of_subscription(
        healthyRetryPolicy={
            "minDelayTarget": 10,
            "maxDelayTarget": 40,
            "numRetries": 10,
            "numNoDelayRetries": 2,
            "numMinDelayRetries": 1,
            "numMaxDelayRetries": 3,
        }
    )
    assert plan(None, stored).delays == (0, 0, 10, 10, 20, 30, 40, 40, 40, 40)


@pytest.mark.parametrize(
    ("function", "delays"),
    [
        ("linear", [1, 6, 11, 16]),
        ("arithmetic", [1, 3.5, 8.5, 16]),
        ("geometric", [1, 16 ** (1 / 3), 16 ** (2 / 3), 16]),
        ("exponential", [1, 1 + 15 / 7, 1 + 45 / 7, 16]),
    ],
)
def test_each_function_has_its_curve(function: str, delays: list[float]) -> None:
    policy = RetryPolicy(1, 16, 4, backoff_function=function)
    assert [policy.delay(number) for number in range(1, 5)] == pytest.approx(delays)


def test_retrying_ends_after_an_hour() -> None:
    def count(**fields: int) -> int:
        return len(plan(None, of_subscription(healthyRetryPolicy=fields)).delays)

    assert count(minDelayTarget=36, numRetries=100) == 100
    assert count(minDelayTarget=37, numRetries=100) == 97
    assert count(minDelayTarget=3600, numRetries=5) == 1
    assert count(numRetries=0) == 0


def test_jitter_makes_delays_longer_by_up_to_a_tenth() -> None:
    default = plan(None, None)
    delays = [default.delay_before_retry(1, fraction) for fraction in (0.0, 0.5, 1.0)]
    assert delays == pytest.approx([20, 21, 22])
    at_once = of_subscription(healthyRetryPolicy={"numNoDelayRetries": 1})
    assert plan(None, at_once).delay_before_retry(1, 0.9) == 0


# Properties

SECONDS = st.integers(1, 3600)
COUNTS = st.integers(0, 25)
SECTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "sicklyRetryPolicy": st.none(),
        "throttlePolicy": st.none() | st.builds(dict, maxReceivesPerSecond=st.integers(1, 1000)),
        "requestPolicy": st.none()
        | st.builds(dict, headerContentType=st.sampled_from(CONTENT_TYPES)),
        "guaranteed": st.booleans(),
    },
)


@st.composite
def retry_policies(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted([draw(SECONDS), draw(SECONDS)])
    phases = [draw(COUNTS) for _ in range(4)]
    return {
        "minDelayTarget": low,
        "maxDelayTarget": high,
        "numRetries": sum(phases),
        "numNoDelayRetries": phases[0],
        "numMinDelayRetries": phases[1],
        "numMaxDelayRetries": phases[2],
        "backoffFunction": draw(st.sampled_from(sorted(BACKOFF_FUNCTIONS))),
    }


@given(retry_policies(), SECTIONS)
def test_plans_keep_within_the_policy(retry: dict[str, Any], sections: dict[str, Any]) -> None:
    stored = of_subscription(healthyRetryPolicy=retry, **sections)
    assert parse_subscription(stored) == stored
    low, high = float(retry["minDelayTarget"]), float(retry["maxDelayTarget"])
    policy = RetryPolicy(
        retry["minDelayTarget"],
        retry["maxDelayTarget"],
        retry["numRetries"],
        retry["numMaxDelayRetries"],
        retry["numNoDelayRetries"],
        retry["numMinDelayRetries"],
        retry["backoffFunction"],
    )
    delays = [policy.delay(number) for number in range(1, retry["numRetries"] + 1)]
    assert delays == sorted(delays)
    waits = delays[retry["numNoDelayRetries"] :]
    assert all(low <= delay <= high for delay in waits)
    assert not any(delays[: retry["numNoDelayRetries"]])
    if policy.num_backoff_retries:
        rising = waits[retry["numMinDelayRetries"] :][: policy.num_backoff_retries]
        assert rising[0] == low
        assert len(rising) == 1 or rising[-1] == high
    made = plan(None, stored)
    totals = list(itertools.accumulate(delays))
    assert made.delays == tuple(delays[: sum(total <= 3600 for total in totals)])
    throttle = sections.get("throttlePolicy")
    assert made.max_receives_per_second == (throttle or {}).get("maxReceivesPerSecond")


@given(retry_policies(), SECTIONS)
def test_a_stored_topic_policy_stores_as_itself(
    retry: dict[str, Any], sections: dict[str, Any]
) -> None:
    stored = of_topic(
        defaultHealthyRetryPolicy=retry,
        defaultThrottlePolicy=sections.get("throttlePolicy"),
        defaultRequestPolicy=sections.get("requestPolicy"),
    )
    assert parse_topic(stored) == stored
    effective = delivery_policies.effective_topic(stored)
    assert parse_topic(effective) == delivery_policies.effective_topic(effective) == effective
    own = delivery_policies.effective_subscription(stored, None)
    assert parse_subscription(own) == own
    assert plan(None, own) == plan(stored, None)


KEYS = st.sampled_from(
    [
        "http",
        "defaultHealthyRetryPolicy",
        "healthyRetryPolicy",
        "throttlePolicy",
        "numRetries",
        "minDelayTarget",
        "maxReceivesPerSecond",
        "guaranteed",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.text() | VALUES.map(json.dumps))
def test_garbage_is_malformed_or_stored(text: str) -> None:
    for parse in (parse_topic, parse_subscription):
        try:
            stored = parse(text)
        except Malformed as error:
            stored = ""
            refusal = str(error)
        else:
            refusal = "DeliveryPolicy: "
        assert refusal.startswith("DeliveryPolicy: ")
        assert parse(stored) == stored
