"""Pure arithmetic over devices, models and sessions. Reads no file, clock or board."""
