// What a graph may no longer have behind each stage of the list: a table in legal.cc.
#pragma once

#include "passes/compile/pass_list.h"

namespace situ {

// The error names the node, or the value, and the fact of `left` that it breaks.
Status check_legal(const PassContext& context, const Facts& left);

}  // namespace situ
