"""The two phases of an exchange, and what they share: before the origin is asked, and after it has answered."""
