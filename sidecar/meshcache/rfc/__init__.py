"""HTTP caching rules as pure functions, one module for each topic; each names its RFC section."""
