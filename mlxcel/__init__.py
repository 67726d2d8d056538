"""mlxcel: an OpenAI-compatible server for MLX models."""
