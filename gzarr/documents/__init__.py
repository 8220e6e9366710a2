"""JSON that nobody vouches for."""
