"""Runs beside one step on its node: start or restore, checkpoint, stop. Standard library only."""
