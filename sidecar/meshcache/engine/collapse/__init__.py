"""Who asks the origin for a key, who waits for the answer, and what each of them gets."""
