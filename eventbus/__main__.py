"""`python -m eventbus` is the `eventbus` command."""

from eventbus.cli.main import main

main()
