"""Values of functions, classes and objects that programs define.

`functions`, `generators`, `exceptions`, `objects` (their special methods, and subclasses of containers),
`object_attributes` (Python's attribute protocol), `super`, and `modules` (``nn.Module``).
"""
