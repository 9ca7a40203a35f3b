"""A dialect of three members, as a new one would be added: this folder, and one row in the table (`__main__.py`)."""
