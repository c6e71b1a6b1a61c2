"""`eventbus`, for `spark-submit`, which wants a file."""

from eventbus.cli.main import main

main()
