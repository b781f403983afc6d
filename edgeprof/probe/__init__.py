"""Measures what this machine reaches through the runtime that decodes, and writes a profile of it.

The parent (``recording``) starts one child (``worker``) a part, so that a part that is killed costs
nothing but itself.
"""
