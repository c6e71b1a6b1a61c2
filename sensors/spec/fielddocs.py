"""What the fields of a model mean: the string below each, which is where editors look for it, too."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache


@cache
def field_docs(model: type) -> Mapping[str, str]:
    """The docstrings of a model's fields, its bases' included, each on one line."""
    docs: dict[str, str] = {}
    for each in reversed(model.__mro__):
        try:
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, TypeError):  # made at run time, or not made in Python
            continue
        if isinstance(definition, ast.ClassDef):
            docs |= _docs_in(definition)
    return docs


def _docs_in(definition: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
