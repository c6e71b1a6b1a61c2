"""Go's text/template with sprig's functions, as far as argo-events' manifests need it.

A template is compiled when the manifest is loaded and rendered for every event. Event data is data: it is looked at,
never parsed as a template, and nothing of Python can be reached from a template.
"""

from __future__ import annotations

from sensors.templates.errors import TemplateError, TemplateSyntaxError
from sensors.templates.template import Template, compile_template

__all__ = ["Template", "TemplateError", "TemplateSyntaxError", "compile_template"]
