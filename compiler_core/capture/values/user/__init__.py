"""Values of functions, classes and objects that programs define.

`functions` (with `function_attributes` and `cells`), `generators`, `exceptions`, `enums`, `namespaces`, `objects`
(their special methods), `object_attributes` (Python's attribute protocol; `descriptors` and `super` are parts of it)
and `subclasses` of containers.  Modules: `modules` (``nn.Module``), `module_calls` (hooks and ``forward``) and
`module_containers`.
"""
