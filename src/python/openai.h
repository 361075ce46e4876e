// Bodies of OpenAI's calls and their answers, as JSON texts.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "python/model_handle.h"

namespace situ::python {

void bind_openai(nanobind::module_& module);

}  // namespace situ::python
