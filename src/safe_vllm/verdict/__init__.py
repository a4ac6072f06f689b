"""Why an attempt ended. Pure."""
