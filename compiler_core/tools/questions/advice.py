"""Advice on recompiles: what to change in the program so that the guard does not fail again.

It follows from the facts of the guards that failed.  `REMEDIES` has each advice once; `tests/faults` proves each on
programs that it is offered for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from compiler_core.records.differences import AdviceTrial
from compiler_core.records.problems import Part
from compiler_core.records.recompiles import (
    INTERMEDIATE,
    LEAF,
    MESSAGE,
    OF_INFERENCE,
    PARAMETERS,
    WEAK_KEYS,
    FailedGuard,
    Recompile,
    has_generated_name,
)

PROVEN = "proven for such programs by Cutaway's tests"
FROM_PYTORCH = "PyTorch's own hint"
NOTHING_HELPS = "Nothing that is known helps here."


def what_changed(cause: FailedGuard) -> str:
    """Returns what happened in few words: ``the dtype of x changed``."""
    if cause.aspect in ("key", "attribute"):
        return f"{cause.name} {'got' if cause.got == 'present' else 'lost'} the {cause.aspect} {cause.item}"
    if cause.aspect == "aliasing":
        return f"{cause.name} and {cause.item} are {cause.got} now"
    if cause.aspect == "identity":
        return f"{cause.name} is another object"
    return f"{cause.item} does not hold" if cause.aspect == "relation" else f"{cause.subject} changed"


def subject_of_change(cause: FailedGuard) -> str:
    """Returns what two differences have in common that are of one cause: a dict's keys change one by one, too."""
    if cause.aspect == "relation" and cause.name:
        return f"a condition on {cause.name}"
    is_of_keys = cause.aspect in ("key", "keys") or (cause.aspect == "length" and _is_of_dict(cause))
    return f"the keys of {cause.name} changed" if is_of_keys else what_changed(cause)


def values_over_time(causes: Iterable[Recompile]) -> list[str]:
    """Returns the values that the recompiles of one frame, in order, name for one subject, each once; no ranges."""
    found: dict[str, None] = {}
    for cause in causes:
        found |= dict.fromkeys(v for v in (cause.expected, cause.got) if v and not v.startswith("at least "))
    return list(found)


class Situation(NamedTuple):
    """What the record says about one difference besides its facts."""

    is_symbolic: bool = False
    """Whether the new compile has a symbol for each number that differs."""
    is_needed: bool = False
    """Whether the program needs the number itself: the new compile had a symbol that became a number, or its line
    says so."""
    is_decided: bool = False
    """Whether the program decides by the number or slices by it, so that no tensor can stand for it."""
    times: int = 1
    """How many compiles of the frame have this difference."""
    is_last: bool = True
    """Whether no later compile of the frame has it."""
    conditions: tuple[str, ...] = ()
    """On the numbers that differ: what the new compile needs of them, besides that sizes are at least 2."""
    no_symbols: str = ""
    """Why the new compile has no symbols (`Compile.no_symbols`)."""
    is_first_step: bool = False
    """Whether it is a part of an optimizer's state, which its first step makes."""
    is_made_inside: bool = False
    """Whether it is a local that the function itself has made, before a graph break."""
    case: str = ""
    """Which number a symbol of the new compile became, if a later compile has a symbol for the others."""
    had_symbol: bool = False
    """Whether an earlier compile has a symbol for it, and did not serve the call for another reason."""

    @property
    def is_settled(self) -> bool:
        """Whether further values need no other compile: there is a symbol, and later calls do not contradict."""
        return self.is_symbolic and self.is_last


class Remedy(NamedTuple):
    """What to do about a difference; the key is that in `REMEDIES`."""

    key: str
    text: str
    lines: list[str]
    """Lines of Python that do it, to run before each call; empty if it needs another program."""
    without: str
    """What remains of the text once it was tried and did not help."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing needs to change."""
        return self.key in NOTHING_TO_CHANGE


UNCHANGED = frozenset({"symbolic number", "two values", "first step"})
"""The remedies that change nothing."""
DYNAMIC = frozenset({"dynamic sizes", "dynamic numbers"})
"""The remedies that ``dynamic=True`` is one way of."""
WITH_SYMBOL = DYNAMIC | {"symbolic number"}
"""The remedies of differences for which a compile has symbols: it covers the calls that meet the conditions on all."""
NOTHING_TO_CHANGE = UNCHANGED | DYNAMIC | {"two modes"}
"""The remedies of differences that need no further compile."""

_SYMBOL = "Nothing to change: compile {compile} has a symbol for it, and covers {covered}."
_SETTLED = f"{_SYMBOL}  To avoid this recompile, too: "


REMEDIES: dict[str, str] = {
    "dynamic sizes": _SETTLED + "dynamic=True (%%compile --dynamic){marks} before the first call.",
    "sizes 0 and 1": "Sizes 0 and 1 are always compiled separately, since they broadcast; dynamic=True does not change "
    "that.  Each takes one more compile.  To avoid it, pad {names} to 2 or more.",
    "few sizes": "This compile holds for one size of {names} only, since the program needs the number itself, and "
    "dynamic=True does not change that.  Pad to a few sizes.",
    "not dynamic": "{item} makes all sizes and numbers constants of the graph, so each value of {names} is compiled "
    "once.  Without it, the second value is compiled with a symbol, which covers later ones.",
    "static sizes": "Sizes of parameters and buffers of modules, and those that are marked static, are constants of "
    "the graph, and dynamic=True does not change that: each is compiled once.  Keep {names} at one size, or pass {it} "
    "as an argument.",
    "NumPy number": "Arithmetic on a NumPy number is done at capture, so each of its values is compiled once.  Pass "
    "`{name}.item()`, for which a symbol can stand.",
    "an index": "PyTorch reads a tensor without dimensions that is an index, so each of its values is compiled once.  "
    "Give it a dimension, `{tensor_read}.reshape(1)`: the result has that dimension, too.",
    "one case": "Calls in which `{item}` holds, and those in which it does not, are compiled separately, since the "
    "program or an operation in it makes this comparison{bounds}.  Pass only inputs of one kind{padding} or remove "
    "the comparison.",
    "value of a break": "{names} {is_} computed before the graph break.  Keep {it} a tensor if that is possible "
    "(torch.rand(()) in place of random.random(), torch.where for a branch): the graph break goes, and with it this "
    "compile.",
    "of a break": "{names} {is_} computed before the graph break, and each value or type of {it} is compiled once.  "
    "Without the graph break, this compile goes, too.",
    "no message": "Each message of the exception is compiled once, since the program reads it.  Catch the exception "
    "by its class, and read its message outside of the compiled function.",
    "dynamic numbers": _SETTLED + "dynamic=True (%%compile --dynamic) before the first call{tensor}.",
    "symbolic number": _SYMBOL,
    "few values": "Each value of {names} is compiled once, since the program needs the value itself; dynamic=True does "
    "not change that.  Use few different values.",
    "first step": "Nothing to change: the first step makes gradients and the state of the optimizer, and compile "
    "{compile} is for the later steps, which find them.",
    "two modes": "Nothing to change: code that records operations for gradients and code that does not, as in training "
    "and in evaluation, are compiled separately, each once.  To avoid this recompile, too: call the function in one "
    "{item}.",
    "two values": "Nothing to change: {names} {has} two values, and each is compiled once.",
    "tensor lr": "Each value of {names} is compiled once.  Give the optimizer a tensor, `lr=torch.tensor(...)`: a "
    "scheduler changes it in place.",
    "a tensor": "Each value of {names} is compiled once; dynamic=True does not change that.  If it only takes "
    "part in arithmetic of tensors, make it a tensor (`register_buffer` in a module); else pass it to the compiled "
    "function as an argument, for which a symbol can stand, or use few different values.",
    "an argument": "Each value of {names} is compiled once; dynamic=True does not change that.  Pass {it} to the "
    "compiled function as an argument, for which a symbol can stand, or use few different values.",
    "one dtype": "Each dtype of {names} is compiled once.  Convert it to one dtype before the call.",
    "one device": "Each device of {names} is compiled once.  Move it to one device before the call.",
    "one requires_grad": "{names} {requires} a gradient in some calls only, and both cases are compiled once.  Let "
    "{it} require a gradient in all calls, or in none{frozen}{detached}.",
    "one layout": "Each memory layout of {names} is compiled once.  Pass `{name}.contiguous()`.",
    "one rank": "Each number of dimensions of {names} is compiled once.  Let {it} have the same number in all calls, "
    "such as by unsqueeze or reshape before the call.",
    "one type": "Each type of {names} is compiled once.  Convert it to one type before the call.",
    "no inference tensor": "{names} {is_} made or used in inference mode in some calls only, and both cases are "
    "compiled once.  Use torch.no_grad() in its place, or pass `{name}.clone()` outside of it.",
    "one class": "Each class of {names} is compiled once.  Use objects of one class; what is replaced only once, "
    "replace before the first call.",
    "not None": "{names} {is_} None in some calls only, and both cases are compiled once.  Give {it} a value in all "
    "calls, or in none.",
    "a value at first": "{names} {is_} None in some calls only, and both cases are compiled once.  Give {it} a value "
    "before the first call.",
    "one length": "Each length of {names} is compiled once.  Use the same number of items in all calls; "
    "if they are tensors, they can be stacked into one tensor.",
    "all keys": "Each set of keys of {names} is compiled once.  Let {it} have the same keys, in one order, in all "
    "calls.",
    "no growing dict": "The keys of {names} change again and again, and the code is compiled for one set of keys.  "
    "Use the dict outside of the compiled function, and pass in what the function needs of it.",
    "no growing list": "The length of {names} changes, and the code is compiled for one length.  "
    "Change the list outside of the compiled function: pass in what is taken from it, and return what is appended.",
    "filled cache": "It is a cache, which grows when its function is called with an argument of another class, and "
    "each length is compiled once.  Call the function once as plain Python for each class, before the first call.",
    "same items": "Each content of {names} is compiled once.  Pass a set that does not change.",
    "sorted": "Each order of {names} is compiled once.  Pass a list, or sorted(...).",
    "same object": "Each object is compiled once, and {names} {is_} another one in some calls.  Pass the same one, or "
    "few different ones, such as the members of an enum; if it is made for each call, make it once, outside of the "
    "compiled function.",
    "clone": "{names} and `{item}` are one tensor in some calls only, and both cases are compiled once.  Pass "
    "`{name}.clone()` where they are one.",
    "copy": "{names} and `{item}` are one object in some calls only, and both cases are compiled once.  Pass "
    "`copy.copy({name})` where they are one.",
    "one setting": "Each setting ({item}) is compiled once.  Call the function under one of them only.",
    "set before": "{names} {has} the attribute `{item}` in some calls only.  Set it before the first call, such as in "
    "`__init__`, to a value like that of later calls.",
    "modules before": "{names} got or lost modules or parameters after the first call.  Add them before, such as in "
    "`__init__`.",
    "hooks before": "A hook was registered or removed after the first call, in {names}.  Do so before.",
    "replace before": "`{name}.{item}` was replaced after the first call.  Replace it before.",
    "define before": "A global hides a builtin since then.  Define it before the first call, or give it another name.",
    "call before": "Call {names} before the compiled function, and pass the result.",
}
"""What to do, by kind.  ``{names}``: the objects that differ; ``{name}``: the first of them; ``{item}``: the key,
setting, condition or other object; ``{compile}``: the new compile; ``{covered}``: the calls that it serves;
``{is_}``, ``{has}``, ``{requires}``, ``{it}``: the verb and the pronoun for the objects;
``{marks}``: `_MARKS`, if the tensors are there before the call; ``{padding}``, ``{bounds}``: that way out, and that
reason, if the condition is on a size; ``{tensor}``: that way out, if nothing is known to need the number itself;
``{tensor_read}``: the tensor whose number it is;
``{detached}``: that way out, if it is an argument that is not computed from what requires a gradient;
``{frozen}``: for weights, how they stay as they are without that."""

_MARKS = ", or torch._dynamo.mark_dynamic on the sizes of {names} that change,"

LINES: dict[str, str] = {
    "dynamic sizes": "torch._dynamo.mark_dynamic({name}, {dims})",
    "a tensor": "{name} = torch.as_tensor({name})",
    "one dtype": "{name} = {name}.to({expected})",
    "one requires_grad": "{name} = {name}.detach()",
    "one layout": "{name} = {name}.contiguous()",
    "NumPy number": "{name} = {name}.item()",
    "sorted": "{name} = sorted({name})",
    "clone": "{name} = {name}.clone()",
    "copy": "{name} = __import__('copy').copy({name})",
}
"""The line that does what a remedy says for one object, where a line can."""


def remedies(
    cause: Recompile,
    situation: Callable[[FailedGuard], Situation],
    compile_id: str,
    is_inside: bool = False,
    passed: str | None = None,
) -> list[Remedy]:
    """Returns what to do about a recompile: one remedy for each kind of difference from the nearest compile.

    That nothing needs to change is said only if it holds for all differences.

    Args:
        cause: why the frame was compiled again.
        situation: what the record says about a difference.
        compile_id: the new compile.
        is_inside: what is compiled is the rest of a function after a graph break, whose locals are not there before
            the call.
        passed: of a function of a library, what the user's line passes to it as the argument that differs; empty if the
            line does not say.  None: the function is the user's.
    """
    found: dict[str, list[FailedGuard]] = {}
    conditions: dict[str, dict[str, None]] = {}
    items: dict[str, str] = {}
    needing: set[str] = set()
    differences = [cause, *cause.besides]
    other_items = {each.name for each in differences if each.aspect == "items"}
    for failed in differences:
        if failed.aspect == "order" and failed.name in other_items:
            continue  # other items have another order
        here = situation(failed)
        key = _remedy_key(failed, here)
        found.setdefault(key, []).append(failed)
        conditions.setdefault(key, {}).update(dict.fromkeys(here.conditions))
        item = _WITHOUT_SYMBOLS[here.no_symbols] if key == "not dynamic" else here.case or failed.item
        items.setdefault(key, item)
        needing |= {key} if here.is_needed or here.is_decided else set()
    covered = _covered(list(dict.fromkeys(each for key in sorted(WITH_SYMBOL) for each in conditions.get(key, ()))))
    all_found = [
        _remedy(key, group, items[key], compile_id, covered, is_inside, bool(conditions[key]) or key in needing, passed)
        for key, group in found.items()
        if key
    ]
    for again in [i for i, each in enumerate(all_found) if each.key in DYNAMIC][1:]:  # the first one avoids all
        all_found[again] = all_found[again]._replace(text=all_found[again].without)
    return [each for each in all_found if not each.is_nothing] or all_found


def differences_to_avoid(cause: Recompile, situation: Callable[[FailedGuard], Situation]) -> list[FailedGuard]:
    """Returns the differences from the nearest compile for which something needs to change; if none does, all."""
    all_failed: list[FailedGuard] = [cause, *cause.besides]
    return [each for each in all_failed if _remedy_key(each, situation(each)) not in NOTHING_TO_CHANGE] or all_failed


def _covered(conditions: list[str]) -> str:
    """Returns which calls a compile serves whose numbers must meet these conditions."""
    if not conditions:
        return "all later calls"
    shown = [each for each in conditions if INTERMEDIATE not in each][:_MAX_CONDITIONS]
    left = len(conditions) - len(shown)
    if not shown:
        return "later calls that meet its conditions"
    listed = " and ".join(f"`{each}`" for each in shown)
    more = f" and {left} more {'condition' if left == 1 else 'conditions'}" if left > 0 else ""
    return f"later calls in which {listed}{more} {'holds' if len(conditions) == 1 else 'hold'}"


def _remedy(
    key: str,
    group: list[FailedGuard],
    item: str,
    compile_id: str,
    covered: str,
    is_inside: bool,
    needs_number: bool,
    passed: str | None,
) -> Remedy:
    found = list(dict.fromkeys(passed or each.name for each in group))
    names = _listed(found)
    lines = [_line(key, each) for each in group if _has_line(key, each, is_inside)]
    marks = _MARKS.format(names=names) if lines and passed != "" else ""  # else the line has no name for it
    is_argument, is_leaf, is_weight = group[0].place == "argument", group[0].item == LEAF, group[0].type == "Parameter"
    is_of_size = ".size(" in item
    text = REMEDIES[key].format(
        names=names,
        name=found[0],
        item=item,
        compile=compile_id,
        marks=marks,
        padding=", such as by padding," if is_of_size else "",
        bounds=", or mark_dynamic has such a bound" if is_of_size else "",
        detached=f"; where none is needed, pass `{found[0]}.detach()`" if is_leaf and is_argument else "",
        frozen="; weights that are not to change can be left out of the optimizer" if is_weight else "",
        tensor_read=found[0].removesuffix(_READ),
        tensor="" if needs_number else ", or a tensor in place of the number",
        covered=covered,
        is_="are" if len(found) > 1 else "is",
        has="have" if len(found) > 1 else "has",
        requires="require" if len(found) > 1 else "requires",
        it="them" if len(found) > 1 else "it",
    )
    without = _SYMBOL.format(compile=compile_id, covered=covered) if key in DYNAMIC else ""
    return Remedy(key, text[:1].upper() + text[1:], list(dict.fromkeys(lines)), without)


def _listed(names: list[str]) -> str:
    """Returns names as a sentence lists them: `` `a`, `b` and `c` ``; the first ones if there are many."""
    shown = list(map(shown_name, names[:_MAX_NAMES]))
    if len(names) > _MAX_NAMES:
        shown.append(f"{len(names) - _MAX_NAMES} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


def shown_name(name: str) -> str:
    """Returns an object's name as sentences have it: code in backticks."""
    return name if name.startswith(INTERMEDIATE) or name == MESSAGE else f"`{name}`"


def _has_line(key: str, failed: FailedGuard, is_inside: bool) -> bool:
    if key not in LINES or INTERMEDIATE in failed.name or (is_inside and failed.place == "argument"):
        return False
    if key == "one requires_grad" and (failed.item != LEAF or failed.place != "argument"):
        return False  # of a computed tensor or a weight, it would end the backward
    if failed.type == "ndarray" or "from_numpy(" in failed.source:
        return False  # an array of NumPy has no methods of tensors
    # an attribute may be a parameter, which takes no other tensor, and what has a position may be in a tuple
    is_parameter = failed.place == "attribute" and key != "a tensor"
    is_in_tuple = failed.name.endswith("]") and failed.name[-2] not in "'\""
    return key == "dynamic sizes" or not (is_parameter or is_in_tuple)


def _line(key: str, failed: FailedGuard) -> str:
    dims = failed.dims[0] if len(failed.dims) == 1 else failed.dims
    return LINES[key].format(name=failed.name, expected=failed.expected, dims=dims)


_BY_ASPECT = {
    "class": "one type", "dtype": "one dtype", "device": "one device", "requires_grad": "one requires_grad",
    "rank": "one rank", "dispatch keys": "one type",
    "length": "one length", "keys": "all keys",
    "items": "same items", "order": "sorted", "identity": "same object", "attribute": "set before",
    "relation": "one case", "setting": "one setting", "function": "replace before", "result": "call before",
}  # fmt: skip
_OF_ARGUMENT = re.compile(r"""L\[(['"])(?!self\1)""")
"""The source of what an argument has, which may be another object in each call."""
_READ = ".item()"
"""The end of the source of a number in a tensor."""
_OF_GRADIENTS = ("grad mode", "inference mode")
"""The settings that training and evaluation have differently."""
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
"""What holds the hooks of a module."""
_NUMBERS = ("int", "float")
NUMPY_NUMBERS = frozenset({
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
})  # fmt: skip
_CONVERTED = frozenset({
    "Tensor", "Parameter", "ndarray", "bool", "int", "float", "complex", "str", "bytes", "list", "tuple", "set",
    "frozenset", "dict",
})  # fmt: skip
"""Classes of values that can be converted to one another, or to which others can."""
_MAX_NAMES = 4
"""How many objects an advice names."""
_MAX_CONDITIONS = 2
"""How many conditions of a compile an advice lists."""


def _remedy_key(failed: FailedGuard, situation: Situation) -> str:
    """Returns the key in `REMEDIES`; an empty string if nothing is known to help."""
    if failed.is_of_first_step or situation.is_first_step:
        return "first step"
    aspect = failed.aspect
    is_number = aspect == "value" and failed.type in (*_NUMBERS, *NUMPY_NUMBERS)
    if failed.name == MESSAGE:
        return "no message"
    is_unsettled = (is_number or aspect == "size") and not situation.is_settled
    is_bound = failed.source.endswith(".__self__")  # of a method: `items` in ``items.append(...)``, which was there
    if (aspect == "relation" or is_unsettled) and has_generated_name(failed.guard) and not is_bound:
        return "of a break" if failed.name.startswith(f"{INTERMEDIATE}.") else "value of a break"
    is_plain = aspect == "value" and (is_number or failed.type in (*_CONVERTED, "NoneType"))
    if aspect in ("class", "value") and not is_plain and has_generated_name(failed.guard) and not is_bound:
        return "of a break"
    if situation.is_made_inside and (aspect == "relation" or (is_number and is_unsettled)):
        return "value of a break"
    if situation.case:
        return "one case"
    if failed.member == "_modules" or failed.type == PARAMETERS:
        return "modules before"
    if failed.member in _HOOKS:
        return "hooks before"
    if aspect == "size":
        if failed.is_broadcast:
            return "sizes 0 and 1"
        if situation.is_settled:
            return "symbolic number" if situation.had_symbol else "dynamic sizes"
        if situation.is_symbolic or situation.is_needed or failed.is_specialised:
            return "few sizes"
        return "not dynamic" if situation.no_symbols else "static sizes"
    if aspect == "stride":
        return "one layout"
    if aspect == "setting" and failed.item in _OF_GRADIENTS:
        return "two modes"
    if aspect in ("length", "keys") and failed.type == WEAK_KEYS:
        return "filled cache"
    if aspect == "key" or (aspect in ("length", "keys") and _is_of_dict(failed)):
        is_growing = situation.times > 1 and (failed.place != "argument" or _has_grown(failed))
        return "no growing dict" if is_growing else "all keys"
    if aspect == "length" and situation.times > 1 and failed.place != "argument":
        return "no growing list"
    if aspect == "aliasing":
        return "clone" if failed.type in ("Tensor", "Parameter") else "copy"
    if aspect == "dispatch keys" and OF_INFERENCE in (failed.expected, failed.got):
        return "no inference tensor"
    if aspect == "class" and not _CONVERTED.intersection((failed.expected, failed.got)):
        return "one class"
    if aspect == "value":
        return _value_remedy(failed, situation)
    return _BY_ASPECT.get(aspect, "")


def _is_of_dict(failed: FailedGuard) -> bool:
    return failed.type.lower().endswith(("dict", "counter")) or failed.kind in _OF_DICTS


_WITHOUT_SYMBOLS = {
    "dynamic=False": "The option dynamic=False (or automatic_dynamic_shapes=False)",
    "backend": "This backend",
}
"""What makes all sizes and numbers constants, by `Compile.no_symbols`."""
_OF_DICTS = frozenset({
    *("DICT_CONTAINS", "DICT_HAS", "DICT_KEYS", "DICT_LENGTH"),
    *("DICT_KEYS_MATCH", "DICT_NOT_CONTAINS", "DICT_VERSION"),  # stock's
})  # fmt: skip
"""The kinds of guards on the keys of a dict."""


def _has_grown(failed: FailedGuard) -> bool:
    """Whether a dict has the keys that it had, and more, or is only known to have more."""
    try:
        expected, got = ast.literal_eval(failed.expected), ast.literal_eval(failed.got)
    except (ValueError, SyntaxError):  # keys that are no literals
        return False
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) > len(expected) and got[: len(expected)] == expected
    return isinstance(expected, int) and isinstance(got, int) and got > expected


def _value_remedy(failed: FailedGuard, situation: Situation) -> str:
    if failed.kind == "GLOBAL_ABSENT":
        return "define before"
    if failed.type == "bool" or failed.kind == "CONDITION_OF_FLAG":
        return "two values"
    if "None" in (failed.expected, failed.got):
        is_of_argument = failed.place == "argument" or _OF_ARGUMENT.match(failed.source)
        return "not None" if is_of_argument or failed.expected != "None" else "a value at first"
    if failed.type == "int" and failed.source.endswith(_READ):
        return "an index"
    if failed.type in NUMPY_NUMBERS and not situation.is_settled:
        return "NumPy number" if failed.place == "argument" else "few values"
    if failed.type not in _NUMBERS and failed.type not in NUMPY_NUMBERS:
        return "few values"
    if failed.name.endswith("['lr']") and "param_groups[" in failed.name and not situation.is_settled:
        return "tensor lr"
    if situation.is_settled:
        # with dynamic=True, too, operations on sizes take other ways for 0 and 1, and 0.0 may be compiled separately
        is_special = (failed.expected in ("0", "1") and bool(situation.conditions)) or failed.expected == "0.0"
        is_passed = failed.place == "argument" and not has_generated_name(failed.guard) and not is_special
        return "dynamic numbers" if is_passed and not situation.had_symbol else "symbolic number"
    is_needed = failed.is_specialised or situation.is_needed or failed.caller is not None  # a library needs a number
    if situation.no_symbols and not is_needed:
        return "not dynamic"
    if is_needed or failed.place == "argument":
        return "few values"
    return "an argument" if situation.is_decided else "a tensor"


# ---- what trials leave of it -------------------------------------------------------------------


def advice_after(parts: Mapping[str, Part], tried: Iterable[AdviceTrial]) -> str:
    """Returns an advice without the parts that trials have refuted; `parts` have the keys of `AdviceTrial.remedies`."""
    tried = list(tried)
    helping = {key for trial in tried if trial.outcome in ("helps", "not tried") for key in trial.remedies}
    refuted = {key for trial in tried if trial.is_refuted for key in trial.remedies}
    texts = [part.without if key in refuted - helping else part.text for key, part in parts.items()]
    return sentences(texts) or NOTHING_HELPS


def sentences(texts: Iterable[str]) -> str:
    """Returns the sentences of texts, each once.  Two spaces are between sentences."""
    return "  ".join(dict.fromkeys(each for text in texts for each in text.split("  ") if each))


def checked_text(tried: Iterable[AdviceTrial], proof: str, how: str) -> str:
    """Returns how an advice was checked: what helped when it was tried, else that nothing did and why.

    Args:
        tried: the trials.
        proof: what is known of an advice that was not tried.
        how: how a reader tries it.
    """
    tried = list(tried)
    helped = [trial for trial in tried if trial.outcome == "helps"]
    if shown := helped or [trial for trial in tried if trial.is_refuted and trial.remedies]:
        return f"Tried {'; '.join(map(str, shown))}."
    reasons = [str(trial) for trial in tried if trial.outcome == "not tried"]
    known = "; ".join(filter(None, [reasons[0] if reasons else "Not tried here", proof]))
    return f"{known}. {how}".rstrip()
