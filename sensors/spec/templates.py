"""Templates as fields of a manifest: a mistake is told with its line and column when the manifest is loaded."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from sensors.spec.base import Flaw
from sensors.spec.fields import Text
from sensors.templates import TemplateSyntaxError, compile_template


def _valid_template(text: str) -> str:
    try:
        compile_template(text)
    except TemplateSyntaxError as error:
        raise Flaw((), error.message, error.index).error() from None
    return text


TemplateText = Annotated[Text, AfterValidator(_valid_template)]
