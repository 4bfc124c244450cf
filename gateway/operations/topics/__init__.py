"""Topics, subscriptions, publishing, signing, SMS, push and the outbox."""
