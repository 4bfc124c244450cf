"""Tests of deploy/: with the programs that read its files."""
