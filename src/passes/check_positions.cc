// The last token that fits the context must have its place in every table that is read by position.
#include "passes/pass.h"
#include "passes/probe.h"

namespace situ {

Status check_positions(PassContext& context) {
  if (context.phase == Phase::kFirst) return Status::ok();
  const Graph& graph = context.graph;
  Prober prober(graph, context.binding, context.evaluator);
  for (const Node& n : graph.nodes) {
    const bool rotary = n.is("Rotary", "situ") && n.has_input(3);
    if (!n.is("Gather") && !n.is("GatherElements") && !rotary) continue;
    const ValueId table = rotary ? n.in[1] : n.in[0], index = rotary ? n.in[3] : n.in[1];
    const Shape& dims = graph.values[table].info.shape;
    const int64_t given = rotary ? 0 : n.attr_int("axis", 0),
                  axis = given < 0 ? given + static_cast<int64_t>(dims.size()) : given;
    if (!prober.known(table) || !prober.host(index) || axis < 0 || axis >= static_cast<int64_t>(dims.size()) ||
        !dims[static_cast<size_t>(axis)].is_const())
      continue;
    const int64_t rows = dims[static_cast<size_t>(axis)].value();
    const Result<Tensor> last = prober.host_value(index, 1, context.length - 1);
    if (!last.is_ok() || dtype_is_float(last->type())) continue;
    for (int64_t row : last->to_i64())
      if (row >= rows)
        return Status::error(
            context.endless ? Code::kInvalidArgument : Code::kContextExceeded,
            (context.endless ? "no window, with which positions have no end: "
                             : "a context of " + std::to_string(context.length) + " tokens does not fit: ") +
                n.label() + " reads row " + std::to_string(row) + " of a table of " + std::to_string(rows));
  }
  return Status::ok();
}

}  // namespace situ
