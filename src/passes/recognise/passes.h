// Passes that recognise what a graph computes, by probing.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status recognise_functions(PassContext&);   // norms and activations, by probing
Status recognise_rotary(PassContext&);      // rotary embeddings, by probing
Status simplify_rotary(PassContext&);       // parts, orders and repetitions around rotary embeddings
Status recognise_attention(PassContext&);   // Softmax outwards; masks, ALiBi, repeat_kv by probing
Status recognise_recurrence(PassContext&);  // states that are read and written by plain operators, by probing

}  // namespace situ
