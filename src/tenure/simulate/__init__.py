"""Tries to make two leaders, from thousands of seeds, with the production classes in simulated time."""
