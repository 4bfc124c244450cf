"""Every option of the connectors, declared once."""
