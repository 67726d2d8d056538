"""The OpenAPI document: a table of operations, the shapes of bodies and answers, and what is made of them."""
