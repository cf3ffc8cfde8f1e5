"""Tables and figures from records; nothing here runs a network."""
