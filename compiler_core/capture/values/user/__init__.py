"""Values of functions, classes and objects that programs define.

`functions`, `generators`, `exceptions`, `objects` (their special methods, subclasses of containers, and ``super()``),
`object_attributes` (Python's attribute protocol), and `modules` (``nn.Module``).
"""
