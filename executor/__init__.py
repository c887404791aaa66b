"""Snakemake executor plugin: steps go on from their latest checkpoint."""
