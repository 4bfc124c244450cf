"""Official AWS clients against a running gateway: one list of cases, one report."""
