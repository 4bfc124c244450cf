"""Traces over OTLP of requests, flushes, deliveries and fires. Loaded only if traces are on.

    request   server    "sqs.SendMessage", "GET /readyz"; the trace of the caller, if any (W3C)
    flush     internal  "flush send"; below the first traced request in it, linked to the others
    delivery  client    "deliver"; one attempt, whose request carries ``traceparent``
    fire      producer  "fire"; one due schedule

A request has one slot for its span, and an entry of a lane one for the context of its caller, in
which the reply runs. Without traces both are None. With traces, an unsampled request costs a
look-up of ``traceparent``, a random number and a context.

Deliveries and fires happen later, perhaps in another process. Messages store no trace context,
because every publish would pay for it: each attempt starts its own trace. ``messaging.message.id``
joins both traces.

Spans contain no bodies, attributes, credentials, receipt handles or URLs of web hooks, whose paths
and passwords are often secrets. Of such URLs they contain host and port.
"""
