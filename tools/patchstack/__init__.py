"""The patch stack: moves a fork's local fixes onto a new upstream base and loses nothing."""
