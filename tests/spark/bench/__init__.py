"""Figures of the connectors: `make bench-spark`."""
