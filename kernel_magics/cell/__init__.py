"""A notebook cell as code that can be compiled."""
