"""The pages of the documentation, pasted into a shell block by block, as a reader would."""
