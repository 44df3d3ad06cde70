"""Ranges of bytes: cutting them out of what is stored, keeping parts, making a whole of them."""
