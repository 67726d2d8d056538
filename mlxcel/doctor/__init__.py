"""What stands in the way of serving here, or will: looked at one by one, without loading a model or importing mlx."""
