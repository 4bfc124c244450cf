"""Queuegate's log as a source and a sink with the contract of Kafka's."""
