"""HTTP for any API: connections, answers, JSON, retries; nothing of any service."""
