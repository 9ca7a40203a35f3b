"""The signature checks of each dialect: a document, the keys bound to its agent and the time go in; verdicts come out.

A valid signature by a key that nothing binds to the agent proves nothing about the agent, so its verdict is `unknown`.
An invalid signature is `failed`, a missing one `not_checked`. No check fetches a key or follows an address.
"""
