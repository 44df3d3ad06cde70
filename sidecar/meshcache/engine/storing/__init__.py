"""What of the origin's answers is stored, and the one way by which it is written."""
