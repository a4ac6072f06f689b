"""Who is told what, and how."""
