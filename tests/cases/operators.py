"""PyTorch's databases of operators and modules with samples of their inputs.

Each iterator over samples searches the call stack for the unittest that runs it, to seed the samples by its name.
There is none here, and the search takes longer than everything else, so it is left out.  So is the traceback that each
seed keeps for a GPU that is not here.
"""

from __future__ import annotations

from typing import Any

from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.common_methods_invocations import op_db as op_db
from torch.testing._internal.common_modules import module_db as module_db
from torch.testing._internal.opinfo import core

from compiler_core.tools.testing.observed_run import seed_all

FOREACH = ("foreach_unary_op_db", "foreach_binary_op_db", "foreach_pointwise_op_db", "foreach_reduce_op_db")
foreach_all: list[Any] = [op for name in FOREACH for op in vars(common_methods_invocations)[name]]
"""The operators on lists of tensors."""
_utils: Any = common_utils
_core: Any = core
for _module in (_utils, _core):
    assert _module.extract_test_fn() is None
    _module.extract_test_fn = lambda: None
_utils.set_rng_seed = seed_all


def _without_seed(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator of random numbers.  The database's own function sets a seed in code that is not captured."""
    return operator(*args, **kwargs)


vars(common_methods_invocations)["wrapper_set_seed"] = _without_seed
