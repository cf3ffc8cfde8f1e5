"""The demo: trains a small network on three styles of digits and adapts it to the fourth."""
