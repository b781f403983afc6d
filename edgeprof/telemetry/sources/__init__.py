"""Where signals come from; one module a source."""
