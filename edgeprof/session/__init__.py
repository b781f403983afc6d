"""What was measured: the records and the one file that holds them."""
