"""One folder per specification: codec, schema, messages. `dialects.py` has the table of all dialects."""
