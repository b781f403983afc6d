"""Readers of model files. Everything they read is hostile until parsed."""
