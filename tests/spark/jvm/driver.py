"""Use the Java SDK from PySpark, on the driver. Prints the bodies received and where the jars are.

Arguments: endpoint, queue URL, number of messages.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    endpoint, queue_url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    spark = SparkSession.builder.getOrCreate()
    jvm = spark._jvm
    assert jvm is not None
    model = jvm.software.amazon.awssdk.services.sqs.model
    builder = jvm.software.amazon.awssdk.services.sqs.SqsClient.builder()
    client = builder.endpointOverride(jvm.java.net.URI.create(endpoint)).build()

    def request(name: str) -> Any:
        return getattr(model, name).builder().queueUrl(queue_url)

    for number in range(count):
        client.sendMessage(request("SendMessageRequest").messageBody(f"driver {number}").build())
    bodies = []
    for _ in range(count):
        received = client.receiveMessage(request("ReceiveMessageRequest").build()).messages()
        for message in received:
            bodies.append(message.body())
            handle = message.receiptHandle()
            client.deleteMessage(request("DeleteMessageRequest").receiptHandle(handle).build())
    jars = [name for name in (spark.conf.get("spark.jars", "") or "").split(",") if name]
    spark.stop()
    print(json.dumps({"bodies": sorted(bodies), "jars": jars}))


if __name__ == "__main__":
    main()
