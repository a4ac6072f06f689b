"""What each subcommand besides ``serve`` does, without click."""
