"""The command line: one module per command, each with `configure(parser)`; see `cli.main` for how one is chosen."""
