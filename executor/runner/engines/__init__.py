"""Checkpoint engines."""
