"""SITU_SWEEP=1, which `make test-all` sets: tests take all of what `make test` takes a part of."""
import os

SWEEPING = bool(os.environ.get("SITU_SWEEP"))

def some(cases, part):
    """All cases of a list or a dictionary in a sweep, else one in `part`, the first among them."""
    if SWEEPING:
        return cases
    return dict(list(cases.items())[::part]) if isinstance(cases, dict) else list(cases)[::part]

def sweep(test):
    """A test that only a sweep runs; unittest finds no other."""
    return test if SWEEPING else None
