"""Drawn requests and values: how many, from which seed, and what was found with them.

`make test` draws a handful from a fixed seed and repeats what is in `found/`. `make fuzz` draws
many from new seeds, and writes what fails into `found/`, to be committed with its mend.
"""
