"""Tables, figures and one page from records."""
