"""The command line: argv in, exit status out. The one room that knows click."""
