"""What to run: intent, profile and machine in, a ladder of rungs out. Pure."""
