"""One TOML file an experiment, and the small files that the experiments need."""
