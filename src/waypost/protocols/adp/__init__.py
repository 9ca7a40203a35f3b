"""ADP: metadata documents, TXT records, invitations; AGP in `agp`."""
