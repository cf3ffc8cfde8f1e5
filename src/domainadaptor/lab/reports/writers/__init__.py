"""Tables in the formats that people paste them into."""
