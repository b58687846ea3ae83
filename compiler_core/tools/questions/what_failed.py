"""Why a frame was compiled again, in sentences."""

from __future__ import annotations

from compiler_core.records.recompiles import AT_CAPTURE, ONE_AT_CAPTURE, FailedGuard, Recompile

_MAX_LISTED = 4


def what_failed(cause: Recompile, first: FailedGuard | None = None) -> str:
    """Returns why the nearest compile did not fit, and what is known of the others, as sentences.

    `first`: the difference that is named first; else the recompile's own.
    """
    of = f"compile {cause.of}" if cause.of else "an earlier compile"
    first = first or cause
    sentences = [f"{_difference(first, of)}."]
    if besides := [each for each in (cause, *cause.besides) if each is not first]:
        listed = "; ".join(_short(each) for each in besides[:_MAX_LISTED])
        left = len(besides) - _MAX_LISTED
        sentences.append(f"Also different: {listed}{f'; and {left} more' if left > 0 else ''}.")
    others = [each for each in cause.others if [f.subject for f in each.failed] != [cause.subject]]
    if others:
        listed = "; ".join(f"{each.compile} ({', '.join(map(_short, each.failed[:2]))})" for each in
                           others[:_MAX_LISTED])  # fmt: skip
        left = len(others) - _MAX_LISTED
        sentences.append(f"Other compiles did not fit either: {listed}{f'; and {left} more' if left > 0 else ''}.")
    return "  ".join(sentences)


def _difference(failed: FailedGuard, of: str) -> str:
    name, item, got, expected = failed.name, failed.item, failed.got, failed.expected
    if failed.aspect in ("key", "attribute"):
        noun = f"{failed.aspect} {item}"
        is_there = got == "present"
        return f"{name} has {'the' if is_there else 'no'} {noun}; {of} was made with{'out' if is_there else ''} it"
    if failed.aspect == "aliasing":
        return f"{name} and {item} are {got}; {of} was made for {expected}"
    if failed.aspect == "relation":
        now = f": {got}" if got else ""
        return f"{item} does not hold{now}; {of} was made for calls in which it does"
    if failed.aspect == "function":
        return f"{name}.{item} was replaced after {of} was made"
    if failed.aspect == "identity" and expected in (AT_CAPTURE, ONE_AT_CAPTURE):
        return f"{name} is not the {got.removeprefix('another ')} for which {of} was made"
    if failed.aspect == "identity" and got:
        return f"{name} is {got}; {of} was made for {expected}"
    at = f" in dimension {failed.dims[0]}" if failed.aspect == "size" and len(failed.dims) == 1 else ""
    subject = failed.subject.replace("the size of", "the shape of") if len(failed.dims) > 1 else failed.subject
    subject = _capitalized(subject) + at
    if not got:
        return f"{subject} {_is(failed)} not {expected}, for which {of} was made"
    return f"{subject} {_is(failed)} {got}; {of} was made for {expected}"


def _short(failed: FailedGuard) -> str:
    """Returns a difference in few words: ``the dtype of x is torch.float64, not torch.float32``."""
    if failed.aspect == "relation":
        return f"{failed.item} does not hold"
    if failed.aspect == "aliasing":
        return f"{failed.name} and {failed.item} are {failed.got}, not {failed.expected}"
    if failed.aspect in ("key", "attribute", "function"):
        return f"{failed.subject} is {failed.got}"
    if failed.aspect == "identity":
        return f"{failed.name} is {failed.got}, not {failed.expected}"
    if not failed.got:
        return f"{failed.subject} is not {failed.expected}"
    return f"{failed.subject} {_is(failed)} {failed.got}, not {failed.expected}"


def _is(failed: FailedGuard) -> str:
    return "are" if failed.aspect in ("keys", "items", "dispatch keys") else "is"


def _capitalized(text: str) -> str:
    """Returns a text with its first letter in upper case if it begins with an article, not with the user's name."""
    return f"T{text[1:]}" if text.startswith("the ") else text
