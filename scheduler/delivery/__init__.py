"""Web hook deliveries: claim, send, judge and record. ``deliver.py`` is the loop."""
