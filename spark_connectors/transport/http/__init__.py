"""HTTP for any API: connections, answers, JSON, retries, rate limits; nothing of any service."""
