"""From a domain name to an agent, and how far that is proven: the procedures of ADP and DNS-AID, and what is written into a
zone. Knows which questions follow from which answers; who asks them over the net is a port (`ports.py`)."""
