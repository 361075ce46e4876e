// Caches of rows that every step would take through products again.
#pragma once

#include "passes/pass.h"

namespace situ {

Status derive_states(PassContext&);

}  // namespace situ
