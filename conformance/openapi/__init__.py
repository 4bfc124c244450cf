"""Faces against their own descriptions."""
