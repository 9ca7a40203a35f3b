"""The engine: publish, renew, withdraw, get, list, find, watch. It knows no protocol and no socket."""
