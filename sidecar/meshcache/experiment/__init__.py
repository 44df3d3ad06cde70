"""Experiments on policies: assignment of requests to arms, what is counted, and what the counts say."""
