"""Runs things on the leader and nowhere else, and keeps them running."""
