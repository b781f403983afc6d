"""What a model is: its weights by group, where it comes from, how its files are read."""
