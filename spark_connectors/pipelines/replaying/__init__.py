"""Messages of an archive, sent again: in their order, and each once for a replay id."""
