"""Training algorithms, one file each; the folder is the table."""
