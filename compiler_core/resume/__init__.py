"""Graph breaks: where a frame is split, resume functions, and the code that replaces the frame."""
