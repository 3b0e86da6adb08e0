"""The session APIs of other systems over a Tertulia store, for code that was written against them.

Every value comes from the store and every write goes through it; there is no second copy.
"""
