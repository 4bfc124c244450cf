"""The promises of every face, kept by each of them and between any two."""
