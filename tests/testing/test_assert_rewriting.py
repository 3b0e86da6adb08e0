"""A failed promise shows its values: pytest rewrites the asserts of every module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from tertulia import testing


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(testing.__path__)])
def test_asserts_are_rewritten(name: str) -> None:
    module = importlib.import_module(f"tertulia.testing.{name}")
    has_asserts = " assert " in inspect.getsource(module)
    assert ("@pytest_ar" in vars(module)) or not has_asserts
