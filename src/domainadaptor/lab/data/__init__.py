"""Images: from files, corrupted, and the digits of the demo."""
