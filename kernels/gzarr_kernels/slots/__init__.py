"""Arrays and constants that compiled code and its callers share. Nothing here is compiled, or imports a compiler."""
