// The API's results as plain tuples and dicts, named as the fields are: situ/results.py makes its classes of them.
#pragma once

#include <nanobind/nanobind.h>

#include "situ/model.h"

namespace situ::python {

nanobind::tuple to_python(const Event& event);
nanobind::dict to_python(const Generation& generation);
nanobind::dict to_python(const Perplexity& perplexity);
nanobind::tuple to_python(const LedgerReading& ledger);
nanobind::dict to_python(const ModelFacts& facts);

}  // namespace situ::python
