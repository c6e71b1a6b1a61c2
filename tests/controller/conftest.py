"""The command line, as its own tests have it."""

from tests.cli.conftest import cli

__all__ = ["cli"]
