"""Reports on dead letters and on archived traffic: as text, as one HTML file, as JSON."""
