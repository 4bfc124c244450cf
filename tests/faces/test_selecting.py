"""Which queue, account and region a request means, and the URLs that it gets (protocol.md 1.4)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.faces.clients import Refused, Sqs, authorization, read_xml
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server
from tests.protocol import contract

ROUTING: list[dict[str, Any]] = contract.load("query_forms")["routing"]


def get(sqs: Sqs, path: str, **params: str) -> Answer:
    """A GET with the client's credentials."""
    target = path + ("?" + urlencode(params) if params else "")
    headers = {
        "Host": sqs.url.partition("://")[2],
        "Authorization": authorization(sqs.account, sqs.region),
    }
    sqs.connection().send(request_bytes("GET", target, headers))
    return sqs.connection().answer()


def _path(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2]


HOSTS = (
    "https://sqs.us-east-1.amazonaws.com/{account}/{name}",
    "https://queue.amazonaws.com/{account}/{name}",
    "https://us-east-1.queue.amazonaws.com/{account}/{name}",
    "https://vpce-1a2b.sqs.us-east-1.vpce.amazonaws.com/{account}/{name}",
    "http://elsewhere:4566/{account}/{name}",
    "http://elsewhere:4566/queue/us-east-1/{account}/{name}",
    "http://elsewhere/queue/{name}",
    "/{account}/{name}",
    "{account}/{name}",
    "{name}",
)


@pytest.mark.parametrize("form", HOSTS)
@pytest.mark.parametrize("name", ["orders", "Orders-2_x", "orders.fifo"])
def test_every_form_of_a_queue_url(sqs: Sqs, form: str, name: str) -> None:
    url = sqs.create_fifo(name) if name.endswith(".fifo") else sqs.create(name)
    told = form.format(account=sqs.account, name=name)
    for _ in range(2):
        assert sqs.arn(told) == sqs.arn(url)
    assert sqs.receive(told) == []


@pytest.mark.parametrize(
    "url",
    ["http://x/", "http://x", "nope", "http://x/111122223333/nope", "a b", "x" * 3000, "/", "ż"],
)
def test_urls_that_are_no_queue(sqs: Sqs, url: str) -> None:
    """On Query a URL that means no queue is no address (docs/contract/protocol.md 1.4)."""
    means_one = url in ("nope", "http://x/111122223333/nope")
    for action in ("ReceiveMessage", "GetQueueAttributes", "DeleteQueue"):
        refused = sqs.refusal(action, QueueUrl=url)
        if sqs.wire == "query" and not means_one:
            assert (refused.status, refused.code) == (404, "InvalidAddress")
            assert refused.text == f"The address {url[:100]} is not valid for this endpoint."
        else:
            assert (refused.status, refused.code) == (
                400,
                "AWS.SimpleQueueService.NonExistentQueue",
            )


def test_attribute_names_and_labels_beyond_ascii(sqs: Sqs) -> None:
    """The name is recorded with 200, no source refuses the label (docs/contract/sqs.md 2.1)."""
    url = sqs.create()
    attributes = {
        "attr.1øßä": {"DataType": "String", "StringValue": "v"},
        "b": {"DataType": "String.größe", "StringValue": "v"},
    }
    sqs.send(url, MessageAttributes=attributes)
    [found] = sqs.receive(url, MessageAttributeNames=["All"])
    assert found["MessageAttributes"] == attributes
    refused = sqs.refusal(
        "SendMessage",
        QueueUrl=url,
        MessageBody="b",
        MessageAttributes={"a^b": attributes["attr.1øßä"]},
    )
    assert refused.text.startswith("Message (user) attribute name can only contain")


@pytest.mark.parametrize("members", [{}, {"QueueUrl": ""}])
def test_no_queue_at_all(sqs: Sqs, members: dict[str, str]) -> None:
    refused = sqs.refusal("ReceiveMessage", **members)
    assert (refused.status, refused.code) == (400, "AWS.SimpleQueueService.NonExistentQueue")


def test_a_queues_path_names_it(sqs: Sqs) -> None:
    url = sqs.create()
    answer = sqs.ask("SendMessage", {"MessageBody": "b"}, path=_path(url))
    assert sqs.decode("SendMessage", answer)["MessageId"]
    answer = sqs.ask("ReceiveMessage", {}, path=_path(url))
    assert len(sqs.decode("ReceiveMessage", answer)["Messages"]) == 1


def test_the_queue_url_wins_over_the_path(sqs: Sqs) -> None:
    one, two = sqs.create("one"), sqs.create("two")
    for member in (two, "two"):
        sqs.ask("SendMessage", {"MessageBody": "b", "QueueUrl": member}, path=_path(one))
    assert (sqs.counts(one)[0], sqs.counts(two)[0]) == (0, 2)


def test_a_path_of_a_queue_that_is_not_there(sqs: Sqs) -> None:
    answer = sqs.ask("ReceiveMessage", {}, path=f"/{sqs.account}/nope")
    with pytest.raises(Refused, match="NonExistentQueue"):
        sqs.decode("ReceiveMessage", answer)


@pytest.mark.parametrize("case", ROUTING, ids=lambda case: str(case["case"]))
def test_recorded_routing(query_sqs: Sqs, case: dict[str, Any]) -> None:
    sqs = query_sqs
    urls = {name: sqs.create(name) for name in ("q", "queue1", "queue2")}
    method, _, target = case["http"].partition(" ")
    target = target.replace("123456789012", sqs.account)
    target = target.replace("<url of queue2>", quote(urls["queue2"], safe=""))
    body = case.get("encoded", "").encode()
    headers = {
        "Host": sqs.url.partition("://")[2],
        "Authorization": authorization(sqs.account),
        **({"Content-Type": "application/x-www-form-urlencoded"} if body else {}),
        **case.get("headers", {}),
    }
    sqs.connection().send(request_bytes(method, target, headers, body))
    answer = sqs.connection().answer()
    expected = case["expect"]
    assert answer.status == expected.get("status", 200), answer.text
    if expected.get("queue") == "queue2":
        assert ":queue2</Value>" in answer.text
    for key in ("code", "message", "body", "type"):
        assert str(expected.get(key, "")) in answer.text
    assert expected.get("QueueUrl", "").replace("<url of queue2>", urls["queue2"]) in answer.text
    assert expected.get("body_is_json_with_top_key", "") in answer.text


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_queue_actions_on_a_queues_path(sqs: Sqs, action: str) -> None:
    path = _path(sqs.create())
    members = {"QueueName": "new"} if action == "CreateQueue" else {}
    answer = sqs.ask(action, members, path=path)
    if sqs.is_query:
        with pytest.raises(Refused, match=f"The action {action} is not valid for this endpoint"):
            sqs.decode(action, answer)
    else:
        assert sqs.decode(action, answer)


def test_get_on_a_queues_url_does_everything(query_sqs: Sqs) -> None:
    sqs = query_sqs
    path = _path(sqs.create())
    sent = get(sqs, path, Action="SendMessage", MessageBody="a b+c%&<>")
    assert sent.status == 200
    assert sent.headers["content-type"] == "text/xml"
    received = get(sqs, path, Action="ReceiveMessage", Version="2012-11-05")
    message = read_xml(received.body)["ReceiveMessageResult"]["Message"]
    assert message["Body"] == "a b+c%&<>"
    handle = message["ReceiptHandle"]
    assert get(sqs, path, Action="DeleteMessage", ReceiptHandle=handle).status == 200


def test_the_form_wins_over_the_query_string_and_both_count(query_sqs: Sqs) -> None:
    sqs = query_sqs
    url = sqs.create()
    headers = {
        "Host": sqs.url.partition("://")[2],
        "Authorization": authorization(sqs.account),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    target = "/?" + urlencode({"Action": "SendMessage", "MessageBody": "query", "QueueUrl": url})
    sqs.connection().send(request_bytes("POST", target, headers, b"MessageBody=form"))
    assert sqs.connection().answer().status == 200
    sqs.connection().send(request_bytes("POST", target, headers))
    assert sqs.connection().answer().status == 200
    assert sqs.bodies(url) == ["form", "query"]


# Namespaces


def test_accounts_and_regions_keep_queues_apart(sqs: Sqs) -> None:
    other_account = str(int(sqs.account) + 500_000_000)
    with (
        sqs.other(account=other_account) as neighbour,
        sqs.other(region="eu-west-1") as abroad,
    ):
        urls = [client.create("orders") for client in (sqs, neighbour, abroad)]
        for client, url in zip((sqs, neighbour, abroad), urls, strict=True):
            client.send("orders", client.account + client.region)
            arn = f"arn:aws:sqs:{client.region}:{client.account}:orders"
            assert client.arn(url) == arn
            assert client.call("ListQueues")["QueueUrls"] == [url]
        for client in (sqs, neighbour, abroad):
            assert client.bodies("orders") == [client.account + client.region]


def test_urls_do_not_name_the_region(sqs: Sqs) -> None:
    """docs/contract/protocol.md 1.4: clients split the path into account and name; the signature
    names the region."""
    with sqs.other(region="eu-west-1") as abroad:
        here, there = sqs.create("orders"), abroad.create("orders")
        assert _path(here) == _path(there) == f"/{sqs.account}/orders"
        assert abroad.url_of("orders") == there
        for client in (sqs, abroad):
            client.send(there, client.region)
            # As PHP and Ruby dial it.
            members = {"QueueUrl": there, "MessageBody": "path"}
            assert client.ask("SendMessage", members, path=_path(there)).status == 200
        for client in (sqs, abroad):
            assert set(client.bodies(there)) == {client.region, "path"}


def test_a_region_in_a_url_wins_over_the_signature(sqs: Sqs) -> None:
    """Two queues of one name: a URL of the form with a region means its queue in parameters and as
    a path, whatever region the request was signed for."""
    with sqs.other(region="eu-west-1") as abroad:
        here = sqs.create("orders")
        abroad.create("orders")
        path = f"/queue/eu-west-1/{sqs.account}/orders"
        there = sqs.url + path
        for client in (sqs, abroad):
            client.send(there, client.region)
        for _ in range(2):
            members = {"QueueUrl": there, "MessageBody": "path"}
            assert abroad.ask("SendMessage", members, path=path).status == 200
        assert sqs.counts(here) == (0, 0, 0)
        found = sorted(sqs.bodies(there))
        assert found == ["eu-west-1", "path", "path", "us-east-1"]


def test_urls_can_name_the_region_in_the_path() -> None:
    with (
        Server(QUEUEGATE_QUEUE_URLS="path") as server,
        Sqs("json", server.url) as sqs,
        sqs.other(region="eu-west-1") as abroad,
    ):
        assert _path(sqs.create("orders")) == f"/{sqs.account}/orders"
        there = abroad.create("orders")
        assert _path(there) == f"/queue/eu-west-1/{sqs.account}/orders"
        assert abroad.url_of("orders") == there
        assert abroad.call("ListQueues")["QueueUrls"] == [there]


def test_a_path_with_a_region_needs_no_parameter(query_sqs: Sqs) -> None:
    with query_sqs.other(region="eu-west-1") as abroad:
        there = abroad.create("orders")
        asked = {"Action": "SendMessage", "MessageBody": "b"}
        headers = {"Host": abroad.connection().host, "Authorization": "any"}
        path = f"/queue/eu-west-1{_path(there)}"
        abroad.connection().send(request_bytes("GET", f"{path}?{urlencode(asked)}", headers))
        assert abroad.connection().answer().status == 200
        assert abroad.bodies(there) == ["b"]


def test_urls_can_name_the_region_as_on_aws() -> None:
    with Server(QUEUEGATE_QUEUE_URLS="host", QUEUEGATE_AUTH="none") as server:
        port = server.url.rpartition(":")[2]
        with Sqs("json", server.url) as sqs, sqs.other(region="eu-west-1") as abroad:
            for client in (sqs, abroad):
                answer = client.ask(
                    "CreateQueue", {"QueueName": "orders"}, headers={"Host": f"localhost:{port}"}
                )
                url = client.decode("CreateQueue", answer)["QueueUrl"]
                host = f"sqs.{client.region}.localhost:{port}"
                assert url == f"http://{host}/{sqs.account}/orders"
                # Without a signature, which would name a region.
                asked = urlencode({"Action": "SendMessage", "MessageBody": client.region})
                with Connection(server.url) as connection:
                    target = f"/{sqs.account}/orders?{asked}"
                    connection.send(request_bytes("GET", target, {"Host": host}))
                    assert connection.answer().status == 200
                assert sqs.bodies(url) == [client.region]


def test_a_queue_of_one_region_is_not_found_in_another(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    with sqs.other(region="eu-west-1") as abroad:
        assert abroad.refusal("ReceiveMessage", QueueUrl=url).code.endswith("NonExistentQueue")
        assert abroad.refusal("GetQueueUrl", QueueName="orders").code.endswith("NonExistentQueue")
        assert "QueueUrls" not in abroad.call("ListQueues")


def test_keys_that_are_no_account_share_the_default_one(sqs: Sqs) -> None:
    name = f"shared-{sqs.wire}"
    with sqs.other(account="AKIAIOSFODNN7EXAMPLE") as one, sqs.other(account="test") as two:
        url = one.create(name)
        assert _path(url) == f"/000000000000/{name}"
        assert two.url_of(name) == url
        two.call("DeleteQueue", QueueUrl=url)


# The URLs that clients get


@pytest.mark.parametrize("host", ["queues.localhost:8080", "localhost", "127.0.0.1:1", "[::1]:1"])
def test_urls_follow_the_host_of_the_request(sqs: Sqs, host: str) -> None:
    answer = sqs.ask("CreateQueue", {"QueueName": "orders"}, headers={"Host": host})
    wanted = f"http://{host}/{sqs.account}/orders"
    assert sqs.decode("CreateQueue", answer)["QueueUrl"] == wanted
    answer = sqs.ask("ListQueues", {}, headers={"Host": host})
    assert sqs.decode("ListQueues", answer)["QueueUrls"] == [wanted]
    assert sqs.arn(wanted)


def test_urls_follow_the_setting_before_the_request() -> None:
    with Server(QUEUEGATE_BASE_URL="https://queues.example") as server:
        for wire in ("json", "query"):
            with Sqs(wire, server.listens_at, "111122223333") as sqs:
                url = sqs.create(wire)
                assert url == f"https://queues.example/111122223333/{wire}"
                sqs.send(url)
                assert sqs.bodies(url) == ["hello"]


# Credentials


def _without(sqs: Sqs, action: str, members: dict[str, Any]) -> bytes:
    data = sqs.encode(action, members)
    lines = data.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.startswith(b"Authorization"))


def test_without_credentials_both_wires_refuse(sqs: Sqs) -> None:
    url = sqs.create()
    for action, members in (("SendMessage", {"MessageBody": "b"}), ("ListQueues", {})):
        given: dict[str, Any] = {"QueueUrl": url} | members if members else {}
        sqs.connection().send(_without(sqs, action, given))
        with pytest.raises(Refused) as caught:
            sqs.decode(action, sqs.connection().answer())
        refused = caught.value
        assert (refused.status, refused.code) == (403, "AccessDenied")
        assert refused.text == f"Access to the resource {sqs.url}/ is denied."
        if not sqs.is_query:
            assert refused.type == "com.amazon.coral.service#AccessDeniedException"
    assert sqs.counts(url) == (0, 0, 0)


def test_a_presigned_query_has_credentials(query_sqs: Sqs) -> None:
    sqs = query_sqs
    params = {
        "Action": "CreateQueue",
        "QueueName": "orders",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{sqs.account}/20260101/eu-west-1/sqs/aws4_request",
        "X-Amz-Date": "20260101T000000Z",
        "X-Amz-Expires": "600",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": "0" * 64,
    }
    with Connection(sqs.url) as connection:
        target = "/?" + urlencode(params)
        connection.send(request_bytes("GET", target, {"Host": connection.host}))
        assert connection.answer().status == 200
    with sqs.other(region="eu-west-1") as abroad:
        assert abroad.arn("orders") == f"arn:aws:sqs:eu-west-1:{sqs.account}:orders"


@pytest.mark.parametrize("value", ["anything", "Bearer abc", "AWS3 x", "AWS key:sig"])
def test_any_credentials_do_where_only_presence_counts(sqs: Sqs, value: str) -> None:
    answer = sqs.ask("ListQueues", {"QueueNamePrefix": "none"}, headers={"Authorization": value})
    assert answer.status == 200


def test_half_a_signature_is_refused(sqs: Sqs) -> None:
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=222222222222"}
    refused = Refused(sqs.ask("ListQueues", {}, headers=headers))
    assert (refused.status, refused.code) == (400, "IncompleteSignature")


@pytest.mark.parametrize("wire", ["json", "json-long", "query"])
def test_without_sign_in_nothing_is_asked(relaxed_server: Server, wire: str) -> None:
    with Sqs(wire, relaxed_server.url) as sqs:
        name = f"open-{wire}"
        sqs.connection().send(_without(sqs, "CreateQueue", {"QueueName": name}))
        url = sqs.decode("CreateQueue", sqs.connection().answer())["QueueUrl"]
        assert _path(url) == f"/000000000000/{name}"
        for _ in range(2):
            sqs.connection().send(
                _without(sqs, "SendMessage", {"QueueUrl": url, "MessageBody": "b"})
            )
            assert sqs.connection().answer().status == 200
        sqs.connection().send(_without(sqs, "PurgeQueue", {"QueueUrl": url}))
        assert sqs.connection().answer().status == 200
        with sqs.other(account="000000000000") as signed:
            assert signed.counts(url) == (0, 0, 0)
            signed.call("PurgeQueue", QueueUrl=url)
            signed.call("DeleteQueue", QueueUrl=url)
            assert signed.create(name) == url
