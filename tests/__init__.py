"""The tests, laid out like the package: `core/keys.py` is tried by `tests/core/test_keys.py`."""
