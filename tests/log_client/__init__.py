"""The Python client of logs."""
