"""The only door to mlx_lm: a model folder becomes a LoadedModel, text becomes token ids."""
