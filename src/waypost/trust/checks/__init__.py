"""One check for each dialect: a document, the keys that something binds to its agent, and the time go in; verdicts come out.

A good signature by a key that nothing binds to the agent proves nothing about who the agent is, so its verdict is `unknown`.
A signature that does not hold is `failed`, none at all is `not_checked`. No check fetches a key or follows an address.
"""
