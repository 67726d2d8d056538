"""From log-probabilities [B, V] to one token a row, each row by its own parameters."""
