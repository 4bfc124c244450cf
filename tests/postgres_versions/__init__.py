"""The storage's tests on each major version of PostgreSQL that Queuegate supports."""
