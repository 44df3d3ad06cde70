"""Policy documents: models, validation, compilation, selection and sources."""
