"""The IETF agent discovery profile on `/profile/v1`."""
