"""The session APIs of other systems over a Tertulia store, for code that was written against them.

Every fact comes from the store and every write goes through it; nothing is kept beside it.
"""
