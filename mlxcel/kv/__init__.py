"""KV memory: who may hold how much of it (`pool`), and the tensors themselves (`arrays`)."""
