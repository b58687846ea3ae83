"""The forms of random tensor programs.

``<x>`` is a tensor of floats, ``<i>`` one of whole numbers, ``<b>`` one of bools, ``<z>`` one of complex numbers,
``<t>`` any, ``<d>`` a dimension, ``<n>`` a small whole number, ``<p>`` a positive one, ``<c>`` a float, ``<type>`` a
dtype, ``<flag>`` True or False, ``<reduction>`` that of a loss; ``<s>`` is a size of a tensor or what is computed from
one, ``<f>`` a float and ``<q>`` a bool of that kind.  A form whose tensors have wrong shapes raises, and another one is
drawn, so forms need not state conditions.
"""

from __future__ import annotations

from tests.sweeps.fuzz import tensor_arithmetic, tensor_operators, tensor_places, tensor_reductions, tensor_sizes

FORMS = {
    group: [line.strip() for line in text.strip().splitlines()]
    for part in (tensor_arithmetic, tensor_reductions, tensor_places, tensor_operators, tensor_sizes)
    for group, text in part.FORMS.items()
}
WEIGHTS = {
    "pointwise": 16, "binary": 16, "whole": 8, "bools": 4, "casts": 6, "reductions": 18, "scans": 4, "views": 14,
    "joined": 5, "indexing": 9, "products": 1, "changes": 7, "complex": 2,
    "windows": 5, "losses": 4, "ordered": 4, "spectra": 3, "complexes": 4, "layers": 5, "random": 3, "writes": 7,
    "sizes": 6, "sized writes": 2,
}  # fmt: skip
"""The weight of each group of forms."""
