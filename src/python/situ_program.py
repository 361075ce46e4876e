"""The command `situ` of the Python package: the program, out of the module. The package itself, which imports numpy, is not
imported: it would take longer than the program to start."""

import importlib.machinery
import importlib.util
import os
import sys


def module_in(folder):
    paths = [os.path.join(folder, "_situ" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return next(filter(os.path.exists, paths), None)


def main():
    """Runs the program with the arguments of the process, and ends with its exit code."""
    # Beside this file, since another package of that name may come first on the path; where the files of the package stay in
    # its sources (an editable install), where Python finds it.
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "situ")
    path = module_in(beside) or module_in(importlib.util.find_spec("situ").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("_situ", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.exit(module.run_program([os.fsencode(argument) for argument in sys.argv]))
