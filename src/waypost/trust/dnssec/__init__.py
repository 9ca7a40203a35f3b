"""What signatures in the DNS prove: one set of records, one delegation, one absence at a time. Knows keys, records and the
hour it is told; asks nobody. Who walks from zone to zone is `net/dns/chain.py`.
"""
