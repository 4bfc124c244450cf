"""Events: messages that are published under routing keys to subscriptions of matching patterns."""
