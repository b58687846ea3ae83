"""Values of Python's built-in container and iterator types."""
