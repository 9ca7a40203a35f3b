"""The SDK: clients of a Waypost service, and agents that announce, find and talk to each other."""
