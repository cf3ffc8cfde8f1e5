"""The page of a diagnosis: one file that needs no network."""
