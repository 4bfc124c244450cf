"""The pipelines' command line."""
