"""The page: try adaptation on your own images in a browser. A local program for one person."""
