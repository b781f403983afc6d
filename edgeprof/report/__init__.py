"""A Session in, text, figures and documents out."""
