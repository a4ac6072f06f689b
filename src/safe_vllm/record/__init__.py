"""What is kept of a launch."""
