"""The APIs of the service: one package per specification, and `rest` for our own `/api/v1`. They do not import each other."""
