"""sprig's functions of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.functions.texts import cut, size
from sensors.templates.printing import escapes_in, joined, quoted, text_of
from sensors.templates.values import Typed

_SPACE = " \t\n\v\f\r\x85\xa0"
_WORD = re.compile(r"(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+)(?:\d+(?![a-z\d]))?|\d[a-z\d]*|[-_\s]+|[^-_\sA-Za-z\d]+", re.ASCII)


def _trim(text: str) -> str:
    return text.strip()


def _trim_all(characters: str, text: str) -> str:
    return text.strip(characters) if characters else text


def _trim_suffix(suffix: str, text: str) -> str:
    return text.removesuffix(suffix)


def _trim_prefix(prefix: str, text: str) -> str:
    return text.removeprefix(prefix)


def _upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    return "".join(character.upper() if len(character.upper()) == 1 else character for character in text)


def _lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    return "".join(character.lower() if len(character.lower()) == 1 else character for character in text)


def _title(text: str) -> str:
    return re.sub(r"(?<!\w)\w", lambda found: _upper(found.group()), text)


def _untitle(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda found: _lower(found.group()), text)


def _swapcase(text: str) -> str:
    return "".join(_upper(each) if each.islower() else _lower(each) for each in text)


def _repeat(budget: Budget, count: int, text: str) -> str:
    if count < 0:
        raise TemplateError("the count must not be negative")
    budget.spend_text(count * len(text))
    return text * count


def _substr(start: int, end: int, text: str) -> str:
    length = size(text)
    first = max(start, 0)
    last = length if start >= 0 and (end < 0 or end > length) else end
    if not 0 <= first <= last <= length:
        raise TemplateError(f"there is no part from {start} to {end}: the length is {length}")
    return cut(text, first, last)


def _trunc(width: int, text: str) -> str:
    length = size(text)
    return cut(text, 0, width) if width >= 0 else cut(text, max(0, length + width), length)


def _abbrev(width: int, text: str) -> str:
    return _abbreviated(0, width, text)


def _abbrev_both(left: int, width: int, text: str) -> str:
    return text if left > 0 and width < 7 else _abbreviated(left, width, text)


def _abbreviated(left: int, width: int, text: str) -> str:
    length = size(text)
    if width < 4 or length <= width:
        return text
    offset = min(left, length - (width - 3)) if left < length else length - (width - 3)
    if offset <= 4:
        return cut(text, 0, width - 3) + "..."
    if offset + width - 3 < length:
        return "..." + _abbreviated(0, width - 3, cut(text, offset, length))
    return "..." + cut(text, length - (width - 3), length)


def _initials(text: str) -> str:
    return "".join(word[0] for word in text.split())


def _nospace(text: str) -> str:
    return "".join(text.split())


def _contains(part: str, text: str) -> bool:
    return part in text


def _has_prefix(prefix: str, text: str) -> bool:
    return text.startswith(prefix)


def _has_suffix(suffix: str, text: str) -> bool:
    return text.endswith(suffix)


def _quote(budget: Budget, *values: Any) -> str:
    return _listed(budget, (_quoted(budget, text_of(value, budget)) for value in values if value is not None))


def _quoted(budget: Budget, text: str) -> str:
    budget.spend_text(len(text) + escapes_in(text))
    return quoted(text)


def _squote(budget: Budget, *values: Any) -> str:
    return _listed(budget, (f"'{text_of(value, budget)}'" for value in values if value is not None))


def _cat(budget: Budget, *values: Any) -> str:
    return _listed(budget, (text_of(value, budget) for value in values if value is not None))


def _listed(budget: Budget, texts: Iterator[str]) -> str:
    return joined((f" {text}" if number else text for number, text in enumerate(texts)), budget)


def _together(budget: Budget, separator: str, texts: list[str]) -> str:
    budget.spend_text(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _indent(budget: Budget, spaces: int, text: str) -> str:
    if spaces < 0:
        raise TemplateError("the count must not be negative")
    budget.spend_text(len(text) + spaces * (text.count("\n") + 1))
    pad = " " * spaces
    return pad + text.replace("\n", f"\n{pad}")


def _nindent(budget: Budget, spaces: int, text: str) -> str:
    return "\n" + _indent(budget, spaces, text)


def _replace(budget: Budget, old: str, new: str, text: str) -> str:
    budget.spend_text(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def _in_words(connector: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        parts, after_word = [], False
        for word in _WORD.findall(text):
            is_word = word[0].isalnum()
            parts.append(connector if is_word and after_word else "")
            parts.append(word.lower() if is_word else re.sub(r"[-_\s]", connector, word))
            after_word = is_word
        return "".join(parts)

    return convert


def _camelcase(text: str) -> str:
    leading = text[: len(text) - len(text.lstrip(f"-_{_SPACE}"))]
    words = re.sub(r"(?:^|([-_\s]+))([^-_\s])([^-_\s]*)", _camel_word, text[len(leading) :])
    return leading + words


def _camel_word(found: re.Match[str]) -> str:
    """One separator goes, the others stay."""
    return (found[1] or "")[:-1] + _upper(found[2]) + _lower(found[3])


def _wrap(budget: Budget, width: int, text: str) -> str:
    return _wrapped(budget, width, "\n", text, long_words=False)


def _wrap_with(budget: Budget, width: int, separator: str, text: str) -> str:
    return _wrapped(budget, width, separator or "\n", text, long_words=True)


def _wrapped(budget: Budget, width: int, separator: str, text: str, *, long_words: bool) -> str:
    """Lines of at most this width, broken at spaces; longer words are broken only if asked for."""
    width = max(width, 1)
    budget.spend_text(len(text) * (1 + len(separator)))
    lines = []
    while len(text) > width:
        if text[0] == " ":
            text = text[1:]
            continue
        budget.spend()
        at = text.rfind(" ", 0, width + 1)
        if at < 0 and long_words:
            lines.append(text[:width])
            text = text[width:]
            continue
        at = text.find(" ", width) if at < 0 else at
        if at < 0:
            break
        lines.append(text[:at])
        text = text[at + 1 :]
    return separator.join([*lines, text])


def _to_string(budget: Budget, value: Any) -> str:
    return text_of(value, budget)


def _to_strings(budget: Budget, value: Any) -> Typed:
    if not isinstance(value, list):
        return Typed() if value is None else Typed([text_of(value, budget)])
    return Typed(text_of(each, budget) for each in value if each is not None)


def _split_list(separator: str, text: str) -> Typed:
    return Typed(text.split(separator) if separator else text)


def _split(separator: str, text: str) -> dict[str, Any]:
    return {f"_{number}": part for number, part in enumerate(_split_list(separator, text))}


def _splitn(separator: str, count: int, text: str) -> dict[str, Any]:
    if count == 0:
        return {}
    if not separator:
        parts = list(text) if count < 0 else [*text[: count - 1], text[count - 1 :]]
    else:
        parts = text.split(separator, count - 1 if count > 0 else -1)
    return {f"_{number}": part for number, part in enumerate(parts)}


def _join(budget: Budget, separator: str, value: Any) -> str:
    return _together(budget, separator, _to_strings(budget, value))


def _sort_alpha(budget: Budget, value: Any) -> Typed:
    return Typed(sorted(_to_strings(budget, value)))


def _base(text: str) -> str:
    stripped = text.rstrip("/")
    return stripped.rpartition("/")[2] or ("/" if text else ".")


def _dir(text: str) -> str:
    return _clean(text[: text.rfind("/") + 1])


def _ext(text: str) -> str:
    name = text.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


def _is_abs(text: str) -> bool:
    return text.startswith("/")


def _clean(text: str) -> str:
    rooted = text.startswith("/")
    parts: list[str] = []
    for part in text.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", ".") and not (part == ".." and rooted):
            parts.append(part)
    return ("/" if rooted else "") + "/".join(parts) or "."


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "trim": _trim,
    "trimAll": _trim_all,
    "trimall": _trim_all,
    "trimSuffix": _trim_suffix,
    "trimPrefix": _trim_prefix,
    "upper": _upper,
    "lower": _lower,
    "title": _title,
    "untitle": _untitle,
    "swapcase": _swapcase,
    "repeat": _repeat,
    "substr": _substr,
    "trunc": _trunc,
    "abbrev": _abbrev,
    "abbrevboth": _abbrev_both,
    "initials": _initials,
    "nospace": _nospace,
    "contains": _contains,
    "hasPrefix": _has_prefix,
    "hasSuffix": _has_suffix,
    "quote": _quote,
    "squote": _squote,
    "cat": _cat,
    "indent": _indent,
    "nindent": _nindent,
    "replace": _replace,
    "plural": _plural,
    "snakecase": _in_words("_"),
    "kebabcase": _in_words("-"),
    "camelcase": _camelcase,
    "wrap": _wrap,
    "wrapWith": _wrap_with,
    "toString": _to_string,
    "toStrings": _to_strings,
    "split": _split,
    "splitn": _splitn,
    "splitList": _split_list,
    "join": _join,
    "sortAlpha": _sort_alpha,
    "base": _base,
    "dir": _dir,
    "ext": _ext,
    "clean": _clean,
    "isAbs": _is_abs,
}
