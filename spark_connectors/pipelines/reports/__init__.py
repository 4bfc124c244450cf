"""Reports on dead letters and on archived traffic."""
