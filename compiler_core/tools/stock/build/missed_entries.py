"""Why stock `torch.compile` compiled a frame again: Dynamo's reasons, completed from the guards of both compiles.

Dynamo names the first guard of each compile that failed.  What else differs follows from the guards of the new compile,
since they hold for the call: a guard of an older compile that a guard of the new one contradicts has failed too, and
one that both have holds.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler_core.records import FailedGuard, Guard, MissedEntry, Recompile, Symbol
from compiler_core.records.recompiles import (
    ONE_AT_CAPTURE,
    PARAMETERS,
    WEAK_KEYS,
    Mismatch,
    has_generated_name,
    layout_differences,
    recompile,
    with_article,
)
from compiler_core.tools.stock.read.recompile_reasons import (
    as_user_wrote,
    class_name,
    failed_guard,
    keys_difference,
    settings_of,
    size_as_call,
    too_small,
)
from compiler_core.tools.stock.read.source_names import EXTENT, is_of_environment, member_of, shown_source, with_keys

_TENSOR = re.compile(
    r"check_tensor\((.+), (\w+), (DispatchKeySet\(.*?\)), (torch\.\w+), device=(\w+), requires_grad=(\w+), "
    r"size=\[(.*?)\], stride=\[(.*?)\]\)$"
)
_VALUE = re.compile(r"(.+) (?:==|is) (-?[\d.]+(?:e[+-]?\d+)?|'.*'|True|False|None)$")
_OBJECT = re.compile(r"_*check_obj_id\((.+), (\d+)\), type=<\w+ '(?:[\w.<>]*\.)?([A-Z]\w*)'>")
"""The check of the identity of an object, of a class that is none of Python's own."""
_CONSTANT = re.compile(r"(.+?) == (.+)$")
"""The check of an `EQUALS_MATCH`: of any constant, such as a device."""
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
_ROOTS = re.compile(r"\bL\['\w+'\]")
_LENGTH = re.compile(r"len\((.+)\) == (\d+)$")
_KEY = re.compile(r"list\(dict\.keys\((.+)\)\)\[(\d+)\] == (.+)$")
_EMPTY = re.compile(r"not (.+)$")
_ARRAY = re.compile(r"_+from_numpy\((.+)\)$")
"""The source of an array of NumPy, or of one number, which Dynamo guards as the tensor of its memory."""
_TYPE = re.compile(r"_*check_type_id\((.+), (\d+)\), type=(.+)$")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt
}  # fmt: skip
_OPERAND = r"(?:-?\d+(?:\.\d+)?|[LG]\['\w+'\][^ ]*)"
_COMPARISON = re.compile(rf"{_OPERAND}(?: (?:==|!=|<=|<|>=|>) {_OPERAND})+")
_SIZE = re.compile(r"[\w.\[\]']+?\.(?:size|stride)\(\)\[\d+\]")
_ONE_OBJECT = re.compile(r"([LG]\['\w+'\][^ ]*) is ([LG]\['\w+'\][^ ]*)")
_ALIASES = re.compile(r"[LG]\['\w+'\][^ ,]*(?=[,)])")
"""The tensors in ``check_no_aliasing(L['x'], L['items'][0])``."""
_BUILTINS = re.compile(r"__builtins_dict___\d+")
NO_KEYS = "[]"
"""The keys of an empty dict."""
_MAX_COMPARED = 16
"""The most compiles whose guards are compared with those of the new one."""


@dataclass
class _Known:
    """What the guards of the new compile say of the values of the call, by source."""

    codes: set[str]
    tensors: dict[str, tuple[str, ...]]
    values: dict[str, str]
    lengths: dict[str, str]
    types: dict[str, str]
    objects: dict[str, str]
    """The ids of objects of classes that are none of Python's own."""
    settings: dict[str, str]
    sizes: Mapping[str, float]
    """The values of symbolic sizes and numbers."""
    aliases: list[tuple[str, str]] = field(default_factory=list)
    """Sources of one object, which is guarded as one of them."""
    _numbers: dict[str, float | None] = field(default_factory=dict)

    @functools.cached_property
    def _roots(self) -> dict[str, str]:
        sources = (*self.types, *self.tensors, *self.values, *self.lengths, *self.sizes)
        return {_without_root(source): source for source in sources}

    @classmethod
    def of(cls, guards: Sequence[Guard], symbols: Sequence[Symbol]) -> _Known:
        known = cls(set(), {}, {}, {}, {}, {}, {}, {symbol.source: symbol.value for symbol in symbols})
        for guard in guards:
            known.codes.add(_code(guard))
            if found := _ONE_OBJECT.fullmatch(guard.code):
                known.aliases.append((found[2], found[1]))
                known.aliases.append((found[1], found[2]))
            if found := _TENSOR.match(guard.code):
                known.tensors[guard.source] = found.groups()
                known.types[guard.source] = found[2]
                if array := _ARRAY.match(guard.source):
                    known.types[array[1]] = "ndarray" if found[7] else found[4].removeprefix("torch.")
            elif found := _TYPE.match(guard.code):
                known.types[guard.source] = class_name(found[3])
            elif length := _length(guard):
                known.lengths[length[0]] = length[1]
            elif found := _OBJECT.match(guard.code):
                known.objects[found[1]] = found[2]
            elif settings := settings_of(guard.code):
                known.settings = settings
            elif found := _value(guard):
                known.values[found[1]] = found[2]
        return known

    def value(self, source: str) -> str:
        """Returns the number or constant at a source; an empty string if it is not known."""
        if source in self.values:
            return self.values[source]
        return str(self.sizes[source]) if source in self.sizes else ""

    def is_value(self, source: str, constant: str) -> bool:
        """Returns whether the value at a source is this constant: ``1`` for a symbol is ``1.0``."""
        number = self.number(constant)
        return self.value(source) == constant or (number is not None and number == self.number(source))

    def number(self, operand: str) -> float | None:
        """Returns a number, or the size or number at a source; None if it is not known."""
        if re.fullmatch(r"-?\d+(\.\d+)?", operand):
            return float(operand) if "." in operand else int(operand)
        if operand not in self._numbers:
            self._numbers[operand] = self._number(operand)
        return self._numbers[operand]

    def _number(self, source: str) -> float | None:
        extent = EXTENT.match(source)
        tensor = None if extent is None else self.root(extent[1])
        if extent is not None and tensor in self.tensors:
            extents = self.extents(tensor, extent[2])
            return extents[int(extent[3])] if int(extent[3]) < len(extents) else None
        text = self.value(source)
        return float(text) if re.fullmatch(r"-?\d+\.\d+", text) else int(text) if text.isdecimal() else None

    def root(self, source: str) -> str:
        """Returns a source with its root: reasons name local variables without ``L``."""
        return self._roots.get(source, source)

    def extents(self, source: str, method: str) -> list[int | None]:
        """Returns the sizes or strides of a tensor; None for one that is not known."""
        text = self.tensors[source][6 if method == "size" else 7]
        found: list[int | None] = []
        for i, each in enumerate(filter(None, text.split(", "))):
            known = each if each.isdecimal() else self.value(f"{source}.{method}()[{i}]")
            found.append(int(known) if known.isdecimal() else None)
        return found


_Keys = list[tuple[str, Guard]]
"""The keys of a dict, in order, with the guards on them."""


class GuardIndex:
    """The guards of a compile, by what reasons for recompiles name."""

    def __init__(self, guards: Sequence[Guard], empty_dicts: Collection[str] = ()) -> None:
        """`empty_dicts`: the sources of dicts that are checked to be empty."""
        self.guards = guards
        self._empty_dicts = empty_dicts
        self._by_code: dict[str, Guard] = {}
        self._of_tensors: dict[str, Guard] = {}
        self._aliasing: Guard | None = None
        for guard in guards:
            self._by_code.setdefault(_without_root(guard.code), guard)
            if guard.kind == "TENSOR_MATCH":
                self._of_tensors.setdefault(_without_root(guard.source), guard)
            elif guard.kind == "NO_TENSOR_ALIASING":
                self._aliasing = self._aliasing or guard

    @functools.cached_property
    def keys(self) -> dict[tuple[str, str], str]:
        """The keys of dicts that are guarded, by the source of the dict and the number of the key."""
        found: dict[tuple[str, str], str] = {}
        for guard in self.guards:  # those of a dict before those of what it holds
            if guard.kind == "EQUALS_MATCH" and (key := _KEY.match(guard.code)):
                found[with_keys(key[1], found), key[2]] = key[3]
        return found

    @functools.cached_property
    def dicts(self) -> dict[str, _Keys]:
        """The keys of the dicts all of whose keys are guarded, in order, with their guards."""
        found: dict[str, dict[int, tuple[str, Guard]]] = {each: {} for each in self._empty_dicts}
        for guard in self.guards:
            if guard.kind == "EQUALS_MATCH" and (key := _KEY.match(guard.code)):
                found.setdefault(key[1], {})[int(key[2])] = key[3], guard
        return {source: [keys[i] for i in sorted(keys)] for source, keys in found.items()}

    def keys_of(self, source: str) -> _Keys | None:
        """Returns the keys of a dict that a reason names; None if they are not known."""
        wanted = _without_root(source)
        return next((keys for each, keys in self.dicts.items() if _without_root(each) == wanted), None)

    def find(self, failed: FailedGuard) -> Guard | None:
        """Returns the guard that a reason is about."""
        if failed.kind == "ALL_DIFFERENT":
            return self._aliasing
        if failed.kind == "TENSOR_MATCH":
            return self._of_tensors.get(_without_root(failed.source))
        code = failed.guard
        if failed.kind == "DICT_LENGTH":
            code = code.replace(" != ", " == ")
        return self._by_code.get(_without_root(code))


def recompile_of(
    reasons: Sequence[MissedEntry],
    guards_of: Mapping[str, GuardIndex],
    now: GuardIndex,
    symbols: Sequence[Symbol],
) -> Recompile:
    """Returns the cause of a recompile.

    Args:
        reasons: Dynamo's reasons, at least one.
        guards_of: the guards of the compiles that did not fit, by their ids.
        now, symbols: the guards and symbols of the new compile.
    """
    known, none = _Known.of(now.guards, symbols), GuardIndex(())
    completed = [
        _complete(each, guards_of.get(each.compile, none), known, now, is_compared=i < _MAX_COMPARED)
        for i, each in enumerate(reasons)
    ]
    entries = [entry for entry, _ in completed]
    for failed in (each for entry in entries for each in entry.failed if is_of_environment(each.source)):
        failed.expected, failed.got = failed.expected.removeprefix("b"), failed.got.removeprefix("b")
    return recompile(entries, checked=[entry.compile for entry, is_checked in completed if is_checked])


def _complete(
    entry: MissedEntry,
    index: GuardIndex,
    known: _Known,
    now: GuardIndex,
    is_compared: bool,
) -> tuple[MissedEntry, bool]:
    """Adds what else differs; also returns whether all other guards are known to hold.

    Args:
        entry: the compile that did not fit, with what Dynamo reports.
        index: its guards.
        known, now: of the new compile.
        is_compared: whether to compare them.
    """
    is_compared = is_compared and bool(now.guards)
    (first,) = entry.failed
    reported = index.find(first)
    if reported is not None:
        differences = _differences(reported, known) if reported.kind == "EQUALS_MATCH" else None
        if first.aspect == "relation" and differences:  # at a source that is not as a user would write it
            type_ = _type_of(differences[0].expected)
            first = failed_guard(reported.kind, reported.code, reported.source, differences[0], type_)
        first.line, first.caller, first.guard = reported.line, reported.caller, reported.code
    elif first.aspect == "key":  # no guard is on the key, but some are on what was there
        item = f"{_without_root(first.source)}[{first.item}]"
        of_item = next((each for each in index.guards if _without_root(each.source).startswith(item)), None)
        first.line, first.caller = (of_item.line, of_item.caller) if of_item is not None else (None, None)
    roots = set(_ROOTS.findall(first.guard)) if first.aspect == "relation" and has_generated_name(first.guard) else ()
    if len(roots) == 1:  # what a graph break leaves has the name of its expression
        (first.source,) = roots
        first.name = shown_source(first.source)
    if of_class := _OBJECT.match(first.guard):
        first.expected, first.got, first.type = ONE_AT_CAPTURE, f"another {of_class[3]}", of_class[3]
    _fill(first, known)
    if reported is not None and reported.kind == "DICT_LENGTH" and first.expected == "0" and not first.got:
        _fill_key(first, now.guards)
    if first.kind in ("DICT_LENGTH", "DICT_KEYS"):
        _fill_keys(first, index, now)
    found, is_checked = [], bool(is_compared and index.guards)
    for source, keys in index.dicts.items() if is_compared else ():
        if _without_root(source) == _without_root(first.source):
            continue  # what is reported says how it differs
        is_checked = is_checked and source in now.dicts
        if difference := _keys_difference(keys, now.dicts.get(source, keys)):
            found.append(_of_keys(source, difference, keys or now.dicts[source]))
    for guard in index.guards if is_compared else ():
        if _KEY.match(guard.code) and guard.kind == "EQUALS_MATCH":
            continue  # compared as a whole
        if guard is reported and guard.kind != "TENSOR_MATCH":
            continue
        if guard.kind == "NO_TENSOR_ALIASING" and first.kind == "ALL_DIFFERENT":
            continue  # one check, listed for each tensor
        if first.aspect in ("keys", "items") and _is_of(guard, first):
            continue  # the list of keys differs, and with it its items
        is_shorter = (first.aspect == "length" and first.got.isdecimal()) or first.got == NO_KEYS
        if is_shorter and _is_beyond(guard, first):
            continue  # an item that a shorter list does not have, or an empty dict
        differences = _differences(guard, known)
        if differences is None:
            is_checked = is_checked and guard is reported
        for difference in differences or ():
            type_ = known.types.get(guard.source, "")
            if not type_ and difference.aspect == "value":
                type_ = _type_of(difference.expected)
            elif difference.aspect == "identity":
                type_ = difference.got.removeprefix("another ")
            failed = failed_guard(guard.kind, guard.code, difference.of or guard.source, difference, type_)
            failed.line, failed.caller = guard.line, guard.caller
            found.append(failed)
    found = list(_without_consequences(first, found))
    for each in (first, *found):
        if (source := with_keys(each.source, index.keys)) != each.source:
            each.name, each.subject = shown_source(source), ""
            each.__post_init__()
    same = [each for each in found if (each.name, each.aspect) == (first.name, first.aspect)]
    others = [each for each in found if each not in same]
    if first.aspect == "dispatch keys" and any(each.name == first.name for each in others):
        return MissedEntry(entry.compile, others), is_checked  # they follow from it
    is_whole = first.aspect == "length" and first.got  # what is reported has all that is known
    return MissedEntry(entry.compile, [*([first] if is_whole else same[:1] or [first]), *others]), is_checked


def _is_of(guard: Guard, failed: FailedGuard) -> bool:
    """Whether a guard is on the object itself of a difference, or on its list of keys."""
    source, owner = _without_root(guard.source), _without_root(failed.source)
    return source == owner or source.startswith(f"list(dict.keys({owner}))")


def _is_beyond(guard: Guard, failed: FailedGuard) -> bool:
    """Whether a guard is on an item of a container, or in one, that is not there, since the container is too short."""
    if guard.kind == "NO_TENSOR_ALIASING":  # with it as one of only two tensors
        left = [each for each in _ALIASES.findall(guard.code) if not _is_in_missing(each, failed)]
        return len(left) < 2
    return _is_in_missing(guard.source, failed)


def _is_in_missing(source: str, failed: FailedGuard) -> bool:
    """Whether a value is an item of a container, or in one, that is not there, since the container is too short."""
    if failed.got in ("0", NO_KEYS):
        return failed.source in source and source != failed.source
    found = re.match(r"\[(\d+)\]", source.removeprefix(failed.source))
    return source.startswith(failed.source) and found is not None and int(found[1]) >= int(failed.got)


def _without_consequences(first: FailedGuard, found: list[FailedGuard]) -> Iterator[FailedGuard]:
    """Leaves out what is read from an object that is another one or of another class, and the dispatch keys where a
    setting differs."""
    is_setting = any(each.aspect == "setting" for each in (first, *found))
    for each in found:
        is_inside = first.source in each.source and each.source != first.source
        if is_inside and first.is_another_object:
            continue
        if each.aspect == "dispatch keys" and is_setting:
            continue
        yield each


def _without_root(text: str) -> str:
    """Returns a source or check without ``L``, which reasons leave out of the names of local variables."""
    return _LOCAL.sub(r"\1", text)


def _fill(failed: FailedGuard, known: _Known) -> None:
    """Adds what the new compile's guards say of the value that was found."""
    failed.source = known.root(failed.source)
    owner = failed.source.removesuffix("._size")
    if owner != failed.source and known.types.get(owner) == PARAMETERS:
        failed.aspect, failed.source = "length", owner
    holder = failed.source.removesuffix(".data")
    if holder != failed.source and known.types.get(holder) == WEAK_KEYS:
        failed.source, failed.place = holder, "attribute"
    failed.type = failed.type or known.types.get(failed.source, "")
    if known.types.get(failed.source.rpartition(".")[0]) == "slice":  # its ends are passed with it
        failed.place = "argument"
    got = {
        "value": known.value(failed.source), "length": known.lengths.get(failed.source, ""),
        "class": known.types.get(failed.source, ""),
    }.get(failed.aspect, "")  # fmt: skip
    if failed.type == PARAMETERS:
        got = known.value(f"{failed.source}._size")
    if failed.aspect in ("size", "stride") and failed.dims:
        got = known.value(f"{failed.source}.{failed.aspect}()[{failed.dims[0]}]")
        if failed.source in known.tensors:
            extents = known.extents(failed.source, failed.aspect)
            extent = extents[failed.dims[0]] if failed.dims[0] < len(extents) else None
            got = got if extent is None else str(extent)
    failed.got = got or failed.got
    if failed.aspect == "relation":
        failed.got = _current_values(failed.guard, known)
    if failed.aspect == "value" and failed.expected == "None" and not failed.got and failed.type:
        failed.got = with_article(failed.type)
    kinds = _type_of(failed.expected), _type_of(failed.got) or failed.type
    is_whole = kinds[1] == "int" and failed.expected.removeprefix("-") in ("inf", "nan")  # symbols have 0 for 0.0
    if failed.aspect == "value" and all(kinds) and kinds[0] != kinds[1] and not is_whole:
        failed.aspect, (failed.expected, failed.got) = "class", kinds
    failed.name, failed.subject = shown_source(failed.source), ""
    failed.member = member_of(failed.source)
    failed.__post_init__()
    if failed.aspect == "value" and not failed.type:
        failed.type = _type_of(failed.expected)


def _fill_keys(failed: FailedGuard, before: GuardIndex, now: GuardIndex) -> None:
    """Names the keys of a dict, if all are guarded, where Dynamo reports its length or the first key that differs; and
    the line that reads them."""
    old, new = before.keys_of(failed.source) or [], now.keys_of(failed.source)
    for _, guard in (old or new or [])[:1]:
        failed.line, failed.caller = guard.line, guard.caller
    is_whole = failed.kind == "DICT_KEYS" or str(len(old)) == failed.expected
    if is_whole and new is not None and (difference := _keys_difference(old, new)):
        failed.aspect, failed.kind, failed.subject = "keys", "DICT_KEYS", ""
        failed.expected, failed.got = difference.expected, difference.got
        failed.__post_init__()


def _keys_difference(expected: _Keys, got: _Keys) -> Mismatch | None:
    """Returns how the keys of a dict differ; None if they are the same."""
    before, after = (f"[{', '.join(key for key, _ in keys)}]" for keys in (expected, got))
    return Mismatch("keys", before, after) if before != after else None


def _of_keys(source: str, difference: Mismatch, keys: _Keys) -> FailedGuard:
    """Returns the difference of the keys of a dict, at the line that reads one of them."""
    ((_, guard), *_) = keys
    failed = failed_guard("DICT_KEYS", guard.code, source, difference, "dict")
    failed.line, failed.caller = guard.line, guard.caller
    return failed


def _fill_key(failed: FailedGuard, now: Sequence[Guard]) -> None:
    """Names a key of a dict that was empty: one of which the new compile guards the item."""
    item = re.compile(rf"{re.escape(failed.source)}\[('[^']*'|\d+)\]")
    if found := next(filter(None, (item.match(guard.source) for guard in now)), None):
        failed.aspect, failed.kind, failed.item, failed.subject = "key", "DICT_CONTAINS", found[1], ""
        failed.expected, failed.got = "absent", "present"
        failed.__post_init__()


def _current_values(condition: str, known: _Known) -> str:
    """Returns the values of the sizes in a condition, as far as they are known, as text."""
    sizes = dict.fromkeys(_SIZE.findall(condition))
    values = {size: known.number(size) for size in sizes}
    return ", ".join(f"{size_as_call(size)} is {value}" for size, value in values.items() if value is not None)


def _type_of(constant: str) -> str:
    if constant in ("True", "False"):
        return "bool"
    if constant.startswith(("'", '"')):
        return "str"
    if constant.startswith(("device(", "torch.")):
        return "device" if constant[0] == "d" else "dtype"
    number = constant.removeprefix("-")
    is_float = number[:1].isdigit() or number in ("inf", "nan")
    return "int" if number.isdecimal() else "float" if is_float else ""


def _differences(guard: Guard, known: _Known) -> list[Mismatch] | None:
    """Returns for which facts a guard does not hold for the call; None if it is not known whether it holds."""
    if settings := settings_of(guard.code):
        return list(_setting_differences(settings, known.settings)) if known.settings else None
    code = _code(guard)
    if code in known.codes or any(code.replace(other, one) in known.codes for other, one in known.aliases):
        return []
    if found := _TENSOR.match(guard.code):
        return list(_tensor_differences(found.groups(), guard.source, known)) if guard.source in known.tensors else None
    if (length := _length(guard)) and length[0] in known.lengths:
        return [Mismatch("length", length[1], known.lengths[length[0]])]
    if (found := _TYPE.match(guard.code)) and guard.source in known.types:
        expected, got = class_name(found[3]), known.types[guard.source]
        return [Mismatch("class", expected, got)] if expected != got else None
    if (found := _OBJECT.match(guard.code)) and known.objects.get(found[1], found[2]) != found[2]:
        return [Mismatch("identity", ONE_AT_CAPTURE, f"another {found[3]}")]
    if (found := _value(guard)) and not _SIZE.fullmatch(found[1]) and (got := known.value(found[1])):
        is_needed = guard.kind == "LAMBDA_GUARD"
        is_same = known.is_value(found[1], found[2])
        return [] if is_same else [Mismatch("value", found[2], got, is_specialised=is_needed)]
    if found := _COMPARISON.fullmatch(guard.code):
        holds = _compare(found, known)
        if holds is False and (difference := too_small(guard.code)):
            extents = known.extents(difference.of, difference.aspect) if difference.of in known.tensors else []
            got = str(extents[difference.dims[0]]) if extents else difference.got
            return [difference._replace(got=got)]
        if holds is not None:
            shown = as_user_wrote(guard.code, _SIZE.findall(guard.code))
            return [] if holds else [Mismatch("relation", shown, _current_values(guard.code, known), item=shown)]
    return None


def _length(guard: Guard) -> tuple[str, str] | None:
    """Returns the source of a container and the length that a guard requires; for an empty one, it is ``not items``."""
    if found := _LENGTH.match(guard.code):
        return found[1], found[2]
    is_of_length = guard.kind in ("LENGTH_CHECK", "SEQUENCE_LENGTH", "DICT_LENGTH", "MAPPING_KEYS_CHECK")
    found = _EMPTY.match(guard.code) if is_of_length else None
    return (found[1], "0") if found else None


def _value(guard: Guard) -> re.Match[str] | None:
    """Returns the source and the constant that a guard compares."""
    return (_CONSTANT if guard.kind == "EQUALS_MATCH" else _VALUE).match(guard.code)


def _code(guard: Guard) -> str:
    """Returns the check without the numbers that Dynamo gives to the dicts of builtins, one for each compile."""
    is_listed_by_tensor = guard.kind == "NO_TENSOR_ALIASING"  # each tensor that none of the others may be
    return f"{guard.kind} {guard.source}" if is_listed_by_tensor else _BUILTINS.sub("builtins", guard.code)


def _compare(found: re.Match[str], known: _Known) -> bool | None:
    """Returns whether ``a == b``, ``a <= b`` or ``a <= b <= c`` holds; None if a number is not known."""
    operands, operators = found[0].split(" ")[::2], found[0].split(" ")[1::2]
    numbers = [number for each in operands if (number := known.number(each)) is not None]
    if len(numbers) < len(operands):
        return None
    return all(_OPERATORS[symbol](a, b) for a, symbol, b in zip(numbers, operators, numbers[1:], strict=False))


def _tensor_differences(expected: Sequence[str], source: str, known: _Known) -> Iterator[Mismatch]:
    got = known.tensors[source]
    if expected[1] != got[1]:
        yield Mismatch("class", expected[1], got[1])
        return
    names = {3: "dtype", 4: "device", 5: "requires_grad"}
    found = [Mismatch(name, expected[i], got[i]) for i, name in names.items() if expected[i] != got[i]]  # type: ignore[arg-type]
    shape, stride = (_extents(expected[i]) for i in (6, 7))
    got_shape, got_stride = known.extents(source, "size"), known.extents(source, "stride")
    found += layout_differences(shape, _where_known(stride, got_stride), got_shape, got_stride)
    yield from found
    if expected[2] != got[2] and not found:
        yield keys_difference(expected[2], got[2])


def _where_known(expected: list[int | None], got: list[int | None]) -> list[int | None]:
    if len(expected) != len(got):
        return expected
    return [None if b is None else a for a, b in zip(expected, got, strict=True)]


def _extents(text: str) -> list[int | None]:
    return [int(each) if each.isdecimal() else None for each in filter(None, text.split(", "))]


def _setting_differences(expected: dict[str, str], got: dict[str, str]) -> Iterator[Mismatch]:
    for name in sorted(expected):
        if name in got and expected[name] != got[name]:
            yield Mismatch("setting", expected[name], got[name], item=name)
