"""One TOML file a board; its power modes inside, a source for every figure."""
