"""NumPy's functions on tensors, which are inlined where a program calls the function of NumPy of that name.

The parameters have NumPy's names and order; `dtype` is the dtype of NumPy's result, which the caller knows.  What they
return must have NumPy's dtype and shape, and must be a view where NumPy's result is one: the caller compares them.
"""

# mypy: ignore-errors
# ruff: noqa: D103

import builtins
import math

import torch


def sum(a, axis=None, dtype=None, *, keepdims=False):
    return torch.sum(a, axis, keepdim=keepdims, dtype=dtype)


def mean(a, axis=None, dtype=None, *, keepdims=False):
    return torch.mean(a, axis, keepdim=keepdims, dtype=dtype)


def std(a, axis=None, dtype=None, *, ddof=0, keepdims=False):
    return torch.std(a.to(dtype), axis, correction=ddof, keepdim=keepdims)


def var(a, axis=None, dtype=None, *, ddof=0, keepdims=False):
    return torch.var(a.to(dtype), axis, correction=ddof, keepdim=keepdims)


def prod(a, axis=None, dtype=None):
    return torch.prod(a, dtype=dtype) if axis is None else torch.prod(a, axis, dtype=dtype)


def max(a, axis=None, *, keepdims=False):
    return torch.amax(a, () if axis is None else axis, keepdim=keepdims)


amax = max


def min(a, axis=None, *, keepdims=False):
    return torch.amin(a, () if axis is None else axis, keepdim=keepdims)


amin = min


def argmax(a, axis=None):
    return torch.argmax(a, axis)


def argmin(a, axis=None):
    return torch.argmin(a, axis)


def any(a, axis=None, *, keepdims=False):
    return torch.any(a.to(torch.bool)) if axis is None else torch.any(a.to(torch.bool), axis, keepdim=keepdims)


def all(a, axis=None, *, keepdims=False):
    return torch.all(a.to(torch.bool)) if axis is None else torch.all(a.to(torch.bool), axis, keepdim=keepdims)


def cumsum(a, axis=None, dtype=None):
    return torch.cumsum(a.reshape(-1) if axis is None else a, 0 if axis is None else axis, dtype=dtype)


def cumprod(a, axis=None, dtype=None):
    return torch.cumprod(a.reshape(-1) if axis is None else a, 0 if axis is None else axis, dtype=dtype)


def dot(a, b, *, dtype=None):
    return torch.matmul(a.to(dtype), b.to(dtype))


def outer(a, b, *, dtype=None):
    return torch.outer(a.to(dtype).reshape(-1), b.to(dtype).reshape(-1))


def einsum(subscripts, *operands, dtype=None):
    return torch.einsum(subscripts, *[each.to(dtype) for each in operands])


def where(condition, x, y, *, dtype=None):
    x = x.to(dtype) if isinstance(x, torch.Tensor) else x
    y = y.to(dtype) if isinstance(y, torch.Tensor) else y
    return torch.where(condition.to(torch.bool), x, y)


def clip(a, a_min=None, a_max=None, *, dtype=None):
    return torch.clamp(a.to(dtype), a_min, a_max)


def reshape(a, shape):
    return torch.reshape(a, shape if isinstance(shape, (tuple, list)) else (shape,))


def ravel(a):
    return a.reshape(-1)


def flatten(a):
    return a.reshape(-1).clone()


def transpose(a, axes=None):
    return torch.permute(a, tuple(range(a.dim()))[::-1] if axes is None else axes)


def swapaxes(a, axis1, axis2):
    return torch.swapaxes(a, axis1, axis2)


def moveaxis(a, source, destination):
    return torch.moveaxis(a, source, destination)


def squeeze(a, axis=None):
    return a.squeeze() if axis is None else a.squeeze(axis)


def expand_dims(a, axis):
    return a.unsqueeze(axis)


def concatenate(arrays, axis=0, *, dtype=None):
    return torch.cat([each.to(dtype) for each in arrays], axis)


def stack(arrays, axis=0, *, dtype=None):
    return torch.stack([each.to(dtype) for each in arrays], axis)


def vstack(tup, *, dtype=None):
    return torch.vstack([each.to(dtype) for each in tup])


def hstack(tup, *, dtype=None):
    return torch.hstack([each.to(dtype) for each in tup])


def column_stack(tup, *, dtype=None):
    return torch.column_stack([each.to(dtype) for each in tup])


def dstack(tup, *, dtype=None):
    return torch.dstack([each.to(dtype) for each in tup])


def meshgrid(*xi, indexing="xy"):
    grids = torch.meshgrid([each.reshape(-1) for each in xi], indexing=indexing)
    return tuple(each.clone() for each in grids)


def split(ary, indices_or_sections, axis=0):
    return torch.tensor_split(ary, indices_or_sections, axis)


array_split = split


def tile(A, reps):
    return torch.tile(A, reps if isinstance(reps, (tuple, list)) else (reps,)).clone()


def repeat(a, repeats, axis=None):
    return torch.repeat_interleave(a, repeats, axis)


def diff(a, n=1, axis=-1):
    return torch.diff(a, n, axis)


def roll(a, shift, axis=None):
    return torch.roll(a, shift, axis)


def take(a, indices, axis=None):
    at = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices)
    taken = a.reshape(-1)[at] if axis is None else a[(slice(None),) * (axis % a.dim()) + (at,)]
    return taken.clone()  # of one index it is a view


def sort(a, axis=-1):
    return torch.sort(a, axis).values


def tril(m, k=0):
    return torch.tril(m, k)


def triu(m, k=0):
    return torch.triu(m, k)


def copy(a):
    return a.clone()


def astype(a, dtype):
    return a.clone() if a.dtype == dtype else a.to(dtype)


def zeros(shape, dtype=None):
    return torch.zeros(shape, dtype=dtype)


def ones(shape, dtype=None):
    return torch.ones(shape, dtype=dtype)


def empty(shape, dtype=None):
    return torch.zeros(shape, dtype=dtype)


def full(shape, fill_value, dtype=None):
    return torch.full(shape if isinstance(shape, (tuple, list)) else (shape,), fill_value, dtype=dtype)


def eye(N, M=None, *, dtype=None):
    return torch.eye(N, N if M is None else M, dtype=dtype)


def identity(n, dtype=None):
    return torch.eye(n, dtype=dtype)


def arange(*bounds, dtype=None):
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if start == 0 and step == 1 and isinstance(stop, int):
        return torch.arange(builtins.max(stop, 0), dtype=dtype)
    # as NumPy computes it, from the first two items; torch.arange rounds otherwise
    kind = torch.int64 if isinstance(start + step, int) else torch.float64
    first = torch.tensor([start, start + step], dtype=kind).to(dtype)
    count = builtins.max(math.ceil((stop - start) / step), 0)
    found = torch.arange(count, dtype=dtype) * (first[1] - first[0]) + first[0]
    found[1:2] = first[1:]
    return found


def linspace(start, stop, num=50, *, dtype=None):
    # as NumPy computes it; torch.linspace rounds otherwise
    steps = torch.arange(num, dtype=torch.float64)
    step = (stop - start) / builtins.max(num - 1, 1)
    found = (steps * step if step != 0 else steps / builtins.max(num - 1, 1) * (stop - start)) + start
    if num > 1:
        found[-1:] = stop
    return (found if dtype.is_floating_point else found.floor()).to(dtype)


def zeros_like(a, dtype=None):
    return torch.zeros_like(a, dtype=dtype)


def ones_like(a, dtype=None):
    return torch.ones_like(a, dtype=dtype)


def empty_like(prototype, dtype=None):
    return torch.zeros_like(prototype, dtype=dtype)


def full_like(a, fill_value, dtype=None):
    return torch.full_like(a, fill_value, dtype=dtype)


def array(object, dtype=None):
    if isinstance(object, torch.Tensor):
        return object.clone() if object.dtype == dtype else object.to(dtype)
    if len(object) > 0 and builtins.all(isinstance(each, torch.Tensor) for each in object):
        return torch.stack([each.to(dtype) for each in object])
    return torch.tensor(object, dtype=dtype)
