"""Models on disk: which there are, fetching one from a hub, whether one is whole, what it will need to run.

It reads files and never loads weights; it knows nothing of tensors in memory, of requests or of the command line.
"""
