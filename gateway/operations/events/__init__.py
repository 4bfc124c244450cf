"""Events: published under routing keys, to whoever subscribes to a pattern that the key matches."""
