# mypy: ignore-errors
# ruff: noqa
"""Programs that change tensors in place, through views and aliases, inside and after the frame.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import torch

from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


@same_as_eager(graphs=1, breaks=["unsupported call"])
def test_shape_of_an_argument_changed_in_place(x):
    x.unsqueeze_(0)
    return x + 1, x.shape


@one_graph(grad=True)
def test_in_place_with_gradients(x):
    y = x * 2
    y.sin_()
    y[0] = 0
    y.mul_(x)
    return y


@one_graph()
def test_in_place_functions(x):
    y = x.clone()
    torch.relu_(y)
    torch.nn.functional.relu(y, inplace=True)
    torch.nn.functional.dropout(y, 0.5, True, True)
    y.clamp_(0, 1).sub_(0.5).abs_().sqrt_()
    return y, torch.sigmoid_(y)


@same_as_eager(graphs=1, breaks=["unsupported call"])
def test_dtype_views_and_set(x):
    return x.view(torch.int32), x.view(torch.uint8).shape, x.clone().set_(x)


@same_as_eager(graphs=1, breaks=["unsupported call"])
def test_resized(x):
    y = x.clone()
    y.resize_(2, 2)
    return y, y.numel()


@one_graph(inputs=lambda: (torch.randn(2, 3, requires_grad=True),))
def test_a_state_detached_in_place(x):
    state = x.tanh()
    loss = (state * 2).sum()
    same = state
    state.detach_()
    state.add_(1)
    return loss + (same * x).sum(), state, same.requires_grad


@one_graph()
def test_detach_in_place_without_a_history(x):
    y = x * 2
    y.detach_()
    return y, y + 1


@one_graph()
def test_views_of_a_tensor_of_the_frame_reshaped_in_place(x):
    base = x + 1
    a, b, c, d = base[0], base[:, 1:], base.view(-1)[None], base[1]
    alias = a
    a.unsqueeze_(0)
    b.t_().transpose_(0, 1).t_()
    c.squeeze_(0).unsqueeze_(-1)
    d.as_strided_((2,), (2,))
    a.mul_(3)
    return a, alias.shape, b, c, d * 2, base, alias is a


@same_as_eager(graphs=2, breaks=["unsupported call"])
def test_a_view_is_not_detached_in_place(x):
    try:
        x[0].detach_()
    except RuntimeError as error:
        return x + 1, str(error)
