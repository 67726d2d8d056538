"""One file an endpoint family: each makes its routes over a service."""
