"""What a board is: its power modes and the figures behind its roofs."""
