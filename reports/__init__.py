"""The templates of the reports, as package data."""
