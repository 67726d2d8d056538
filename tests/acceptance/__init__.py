"""The judge judged: a sound server passes, and every fault is found by the matrix that is there for it."""
