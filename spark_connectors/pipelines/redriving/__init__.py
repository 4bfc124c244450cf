"""Dead letters back to the queues that they came from: all of them, or some."""
