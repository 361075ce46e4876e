// Passes for fixed windows.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status lift_extents(PassContext&);         // fixed windows: extents that are numbers become symbols
Status order_single_tokens(PassContext&);  // attention of a fixed window of one token sees no later one

}  // namespace situ
