// Keyword arguments of Python as options of the API.
#pragma once

#include <nanobind/nanobind.h>

#include "situ/generate.h"
#include "situ/load_options.h"

namespace situ::python {

// Fields by their names; what is not named, or is None, keeps its default. TypeError: an unknown name, a value of
// another type.
GenerateOptions options_of(const nanobind::dict& arguments);
LoadOptions load_options_of(const nanobind::dict& arguments);
nanobind::list option_names();
nanobind::list load_option_names();

}  // namespace situ::python
