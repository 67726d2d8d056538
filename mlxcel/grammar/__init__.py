"""A caller's schema becomes a constraint on one row's tokens. Pure: no tensor, no HTTP; llguidance does the parsing."""
