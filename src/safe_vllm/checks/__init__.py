"""What may be wrong with a machine, an installation and a command before anything is started. Pure."""
