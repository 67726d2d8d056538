"""What the command lines of all tools share: errors with their exit codes, the edge, and where answers go."""
