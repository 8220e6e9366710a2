"""What is taken as an array, and boxes that go beyond its ends, for the loader and for work in blocks."""
