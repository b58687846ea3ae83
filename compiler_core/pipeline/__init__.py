"""What happens to a frame, in order; what a compiled function keeps of its code objects."""
