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
    if (!n.is("Gather") && !rotary) continue;
    const ValueId table = rotary ? n.in[1] : n.in[0], index = rotary ? n.in[3] : n.in[1];
    const Tensor& rows = graph.values[table].constant;
    if (!rows.present() || rows.rank() == 0 || n.attr_int("axis", 0) != 0 || !prober.host(index)) continue;
    const Result<Tensor> last = prober.host_value(index, 1, context.length - 1);
    if (!last.is_ok() || dtype_is_float(last->type())) continue;
    for (int64_t row : last->to_i64())
      if (row >= rows.dims()[0])
        return Status::error((context.endless ? "no window, with which positions have no end: " : "a context of " + std::to_string(context.length) + " tokens does not fit: ") + n.label() + " reads row " +
                             std::to_string(row) + " of a table of " + std::to_string(rows.dims()[0]));
  }
  return Status::ok();
}

}  // namespace situ
