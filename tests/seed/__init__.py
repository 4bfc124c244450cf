"""The tables of docs/seeds.md 1.2 and 1.5, row by row."""
