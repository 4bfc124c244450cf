"""The tables of seeds/beyond-queue.txt, row by row."""
