"""gzarr inside other libraries. Each module imports its library, and is imported only when it is used."""
