"""The face of logs, over the wire."""
