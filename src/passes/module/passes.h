// Passes over what goes in: inputs, branches, extents, masks.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status bind_inputs(PassContext&);         // symbols for batch, new tokens, past; constant inputs
Status fold_extents(PassContext&);        // of an encoder: Shape of what has known extents
Status check_mask(PassContext&);          // ones in the attention mask hide nothing, and a zero hides a key
Status inline_control(PassContext&);      // If on a known predicate
Status computed_positions(PassContext&);  // positions counted in the mask: fed by the host

}  // namespace situ
