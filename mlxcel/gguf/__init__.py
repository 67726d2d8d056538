"""GGUF files of the llama family to MLX folders: `mlxcel import`. The door is `mlxcel.gguf.conversion`.

It reads and writes files with numpy alone and knows nothing of MLX arrays, models or servers.
"""
