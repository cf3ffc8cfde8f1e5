"""Networks by name, the preprocessing they were trained with, and their weights."""
