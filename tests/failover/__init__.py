"""Failover by Patroni under load: `make failover`. docs/explanation/reliability.md describes it."""
