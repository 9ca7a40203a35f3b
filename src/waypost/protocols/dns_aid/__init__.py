"""DNS-AID and AID: SVCB, TXT and TLSA records."""
