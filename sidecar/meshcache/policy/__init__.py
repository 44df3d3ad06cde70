"""Policy documents: models, validation, compilation, selection and sources.

`compile.compile_documents` turns `documents.Documents` (text) into a `snapshot.Snapshot`; `sources` reads the text.
"""
