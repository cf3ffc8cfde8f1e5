"""The forms in which a table can be shown: the folder is the registry, `__all__` of each file names its views."""
