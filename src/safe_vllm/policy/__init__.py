"""What to do next. Pure, but for the one module that adapts tenacity."""
