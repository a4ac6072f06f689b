"""What a launch keeps: what broke and what held, reports on failed attempts, and what runs now."""
