"""A small origin to try meshcache against."""
