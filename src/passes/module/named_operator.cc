#include "passes/module/named_operator.h"

#include "ops/known.h"
#include "ops/op.h"

namespace situ {

bool is_operator(const Node& node) {
  ReasonList unknown;
  check_known(node, &unknown);
  return unknown.empty() && has_known_attributes(node.domain, node.op) &&
         find_op(node.domain, node.op, node.opset) != nullptr;
}

}  // namespace situ
