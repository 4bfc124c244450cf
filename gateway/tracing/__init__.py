"""Traces over OTLP, of requests, flushes, deliveries and fires. Off, none of this is loaded.

    request   server    "sqs.SendMessage", "GET /readyz"; the caller's trace if it names one (W3C)
    flush     internal  "flush send"; below the first traced request in it, linked to the others
    delivery  client    "deliver"; one attempt at a web hook, which gets its ``traceparent``
    fire      producer  "fire"; one schedule that came due

What is off costs nothing: instead of asking on every request whether it is traced, the process is
put together from other parts (``gateway.tracing.server``). What is on costs a request that nobody
samples a look for ``traceparent`` and a random number.

A delivery happens later and maybe in another process, and so does a fire. Nothing of the publish's
trace is stored with the message, as that would cost every publish: each attempt begins a trace of
its own. ``messaging.message.id`` is on both sides and joins them.

In no span are bodies, attributes, credentials, receipt handles, or URLs of web hooks, whose path
and password are often secrets; of those, host and port alone.
"""
