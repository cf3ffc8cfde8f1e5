"""How well a method does: named orders of test images, and counts of what came of them."""
