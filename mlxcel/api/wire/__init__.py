"""Request and response shapes as OpenAI's clients know them. Pure: bytes and values, no HTTP."""
