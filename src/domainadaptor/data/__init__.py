"""Images: from files, and the digits of the demo."""
