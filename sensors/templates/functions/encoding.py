"""JSON, base64, hashes and URLs, as Go writes them."""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Callable
from hashlib import sha1, sha256, sha512
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from sensors.numerals import in_json, printed
from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.functions.registry import Dict
from sensors.templates.printing import Writer, scalar_text
from sensors.templates.values import from_json, kind_of

_SAFE_FOR_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_ALWAYS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})


# --- JSON -----------------------------------------------------------------------------------------------------------


def _to_json(budget: Budget, value: Any) -> str:
    return _to_raw_json(budget, value).translate(_SAFE_FOR_HTML)


def _to_pretty_json(budget: Budget, value: Any) -> str:
    writer = Writer(budget)
    _write(value, writer, "  ", 0)
    return writer.text().translate(_SAFE_FOR_HTML)


def _to_raw_json(budget: Budget, value: Any) -> str:
    writer = Writer(budget)
    _write(value, writer, None, 0)
    return writer.text()


def _write(value: Any, writer: Writer, indent: str | None, depth: int) -> None:
    writer.budget.check_nesting(depth)
    match value:
        case dict():
            colon = ":" if indent is None else ": "
            _write_all("{}", [(_string(key) + colon, value[key]) for key in sorted(value)], writer, indent, depth)
        case list():
            _write_all("[]", [("", each) for each in value], writer, indent, depth)
        case str():
            writer.write(_string(value))
        case None:
            writer.write("null")
        case float():
            writer.write(_number(value))
        case _:
            writer.write(scalar_text(value) if isinstance(value, bool | int) else _string(scalar_text(value)))


def _write_all(brackets: str, entries: list[tuple[str, Any]], writer: Writer, indent: str | None, depth: int) -> None:
    line = "" if indent is None or not entries else "\n" + indent * depth
    writer.write(brackets[0])
    for number, (key, value) in enumerate(entries):
        writer.write(f"{',' if number else ''}{line}{indent or ''}{key}")
        _write(value, writer, indent, depth + 1)
    writer.write(line + brackets[1])


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).translate(_ALWAYS)


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise TemplateError(f"{printed(value)} is not JSON")
    return in_json(value)


def _from_json(budget: Budget, text: str) -> Any:
    """nil where it is not JSON."""
    try:
        return _must_from_json(budget, text)
    except TemplateError:
        return None


def _must_from_json(budget: Budget, text: str) -> Any:
    budget.spend_text(len(text))
    try:
        data = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise TemplateError(f"the text is not JSON: {error}") from None
    return from_json(data, budget)


# --- bytes ----------------------------------------------------------------------------------------------------------


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _b64enc(text: str) -> str:
    return base64.b64encode(_bytes(text)).decode()


def _b64dec(text: str) -> str:
    return _decoded(lambda: base64.b64decode(_without_breaks(text), validate=True), "base64")


def _b32enc(text: str) -> str:
    return base64.b32encode(_bytes(text)).decode()


def _b32dec(text: str) -> str:
    return _decoded(lambda: base64.b32decode(_without_breaks(text)), "base32")


def _without_breaks(text: str) -> bytes:
    return _bytes(text.replace("\n", "").replace("\r", ""))


def _decoded(decode: Callable[[], bytes], name: str) -> str:
    try:
        return decode().decode(errors="replace")
    except binascii.Error:
        raise TemplateError(f"the text is not {name}") from None


def _sha1sum(text: str) -> str:
    return sha1(_bytes(text), usedforsecurity=False).hexdigest()


def _sha256sum(text: str) -> str:
    return sha256(_bytes(text)).hexdigest()


def _sha512sum(text: str) -> str:
    return sha512(_bytes(text)).hexdigest()


def _adler32sum(text: str) -> str:
    return str(zlib.adler32(_bytes(text)))


# --- URLs -----------------------------------------------------------------------------------------------------------

_URL_PARTS = ("scheme", "userinfo", "host", "path", "query", "opaque", "fragment")


def _url_parse(text: str) -> Dict:
    try:
        parts = urlsplit(text)
        hostname = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise TemplateError("the text is not a URL") from None
    userinfo, at, host = parts.netloc.rpartition("@")
    opaque = bool(parts.scheme) and not parts.netloc and not parts.path.startswith("/") and bool(parts.path)
    return {
        "scheme": parts.scheme,
        "host": host,
        "hostname": _written_case(host, hostname),
        "path": "" if opaque else unquote(parts.path),
        "query": parts.query,
        "opaque": parts.path if opaque else "",
        "fragment": unquote(parts.fragment),
        "userinfo": userinfo if at else "",
    }


def _written_case(host: str, hostname: str) -> str:
    """Python makes a host name lower-case, Go leaves it as it is."""
    at = host.lower().find(hostname)
    return host[at : at + len(hostname)] if at >= 0 else hostname


def _url_join(parts: Dict) -> str:
    wrong = [key for key in _URL_PARTS if not isinstance(parts.get(key, ""), str)]
    if wrong:
        raise TemplateError(f"`{wrong[0]}` must be a string, not a {kind_of(parts[wrong[0]])}")
    scheme, userinfo, host, path, query, opaque, fragment = (parts.get(key, "") for key in _URL_PARTS)
    text = f"{scheme}:" if scheme else ""
    if opaque:
        text += opaque
    else:
        text += f"//{userinfo}{'@' if userinfo else ''}{host}" if host or userinfo else ""
        slash = "/" if path and not path.startswith("/") and host else ""
        text += slash + quote(path, safe="/$&+,:;=@~!*'()", errors="replace")
    text += f"?{query}" if query else ""
    return text + (f"#{quote(fragment, safe='!$&()*+,-./:;=?@_~', errors='replace')}" if fragment else "")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "toJson": _to_json,
    "mustToJson": _to_json,
    "toPrettyJson": _to_pretty_json,
    "mustToPrettyJson": _to_pretty_json,
    "toRawJson": _to_raw_json,
    "mustToRawJson": _to_raw_json,
    "fromJson": _from_json,
    "mustFromJson": _must_from_json,
    "b64enc": _b64enc,
    "b64dec": _b64dec,
    "b32enc": _b32enc,
    "b32dec": _b32dec,
    "sha1sum": _sha1sum,
    "sha256sum": _sha256sum,
    "sha512sum": _sha512sum,
    "adler32sum": _adler32sum,
    "urlParse": _url_parse,
    "urlJoin": _url_join,
}
