"""Data sets, one file each: a function from a root folder to a DomainDataset; the folder is the registry."""
