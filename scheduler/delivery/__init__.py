"""Requests to web hooks: claimed in turn, made, judged, recorded. ``deliver.py`` is the loop."""
