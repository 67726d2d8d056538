"""Settings: one frozen value, made of flags, environment, file and defaults, each with its origin."""
