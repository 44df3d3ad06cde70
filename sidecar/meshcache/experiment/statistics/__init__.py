"""Statistics of experiments: pure functions of counts. Needs numpy and scipy: not for the request path.

`compare` is what verdicts are made of; `sample_ratio` says whether the arms have the units that their weights promise;
What the numbers mean is told in docs/statistics.md.
"""
