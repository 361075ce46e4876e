// Images of a prompt as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "python/model_handle.h"

namespace situ::python {

// Images as the model's encoder reads them, or null, and the prompt of ids that they are of.
inline Prompt prompt_of(std::vector<int64_t> ids, const Images* images) {
  return {std::move(ids), images ? images->arrays : std::vector<NamedArray>(), {}};
}

void bind_images(nanobind::class_<ModelHandle>& model, nanobind::module_& m);

}  // namespace situ::python
