"""The command `situ` of the Python package: the program, out of the module. The package itself, which imports numpy, is not
imported: it would take longer than the program to start."""

import importlib.machinery
import importlib.util
import os
import sys


def main():
    """Runs the program with the arguments of the process, and ends with its exit code."""
    folder = importlib.util.find_spec("situ").submodule_search_locations[0]
    paths = [os.path.join(folder, "_situ" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    path = next(filter(os.path.exists, paths))
    spec = importlib.util.spec_from_file_location("_situ", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.exit(module.run_program([os.fsencode(argument) for argument in sys.argv]))
