"""From a domain name to an agent and its trust level (ADP, DNS-AID), and the records of a zone. Network access is a port."""
