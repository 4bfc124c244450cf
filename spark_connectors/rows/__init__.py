"""Messages as rows of a DataFrame."""
