"""Acceptance evidence: drives any OpenAI-compatible server and compares it with mlx_lm, the reference."""
