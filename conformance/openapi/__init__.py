"""The native API against its own description."""
