"""What this machine and this installation are. Reads, never changes."""
