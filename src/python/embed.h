// Embeddings and scores of pairs, as arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "python/model_handle.h"

namespace situ::python {

void bind_embed(nanobind::class_<ModelHandle>& model);

}  // namespace situ::python
