"""What guards usually cost, for records that are read without PyTorch and for parts that are not measured."""

from __future__ import annotations

STEP_NS = 5.0
"""What an access step usually costs."""
KIND_NS = {
    "ID_MATCH": 2.0, "TYPE_MATCH": 1.0, "EQUALS_MATCH": 2.0, "LENGTH_CHECK": 3.0, "DICT_CONTAINS": 8.0,
    "DIMENSION_DYNAMIC_MARKING_GUARD": 13.0, "LAMBDA_GUARD": 33.0, "TENSOR_MATCH": 70.0,
}  # fmt: skip
"""What a check of each kind usually costs: checks of one value divide the cost of its part of the tree in these ratios.
``make bench ARGS='-k kind_of_guard'`` measures them again."""
