"""The symbolic interpreter, and the FX graph that it builds."""
