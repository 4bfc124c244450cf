"""What every face promises, kept by each of them and between any two."""
