"""Long runs against one server: a thousand clients of which a tenth leave, too many at once, and /health under load.

`make soak` runs them in full size; tests/server/test_soak.py runs a small twin of each.
"""
