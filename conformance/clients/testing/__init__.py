"""Thin clients for test suites in JavaScript and Java, and their tests."""
