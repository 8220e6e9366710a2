"""Documents in a store: found, made, changed."""
