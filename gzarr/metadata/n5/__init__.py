"""N5: https://github.com/saalfeldlab/n5."""
