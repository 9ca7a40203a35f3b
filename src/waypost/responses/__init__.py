"""Response types. The server encodes them, the OpenAPI description is generated from them, and the client decodes into them."""
