// What hangs on the extents of activations alone. Exporters take the batch of a cross-attention's keys from the tokens
// of its layer: without this the encoder's program would have the decoder's layers before it, for the sake of a 1.
#include "passes/context/pass_context.h"
#include "passes/module/passes.h"

namespace situ {

Status fold_extents(PassContext& context) {
  if (!context.encoder) return Status::ok();
  Graph& graph = context.graph;
  std::map<ValueId, ValueId> known;  // by what they stand for
  for (const Node& n : graph.nodes) {
    if (!n.is("Shape") && !n.is("Size")) continue;
    const Value& value = graph.values[n.out[0]];
    if (!value.info.content) continue;
    std::vector<int64_t> extents;
    for (const Dim& d : *value.info.content)
      if (d.is_const()) extents.push_back(d.value());
    if (extents.size() != value.info.content->size() || value.info.type != DType::kI64) continue;
    const std::vector<int64_t> dims =
        n.is("Shape") ? std::vector<int64_t>{static_cast<int64_t>(extents.size())} : std::vector<int64_t>{};
    const Tensor t = Tensor::allocate(DType::kI64, dims);
    for (size_t i = 0; i < extents.size(); ++i) t.view().as<int64_t>()[i] = extents[i];
    known[n.out[0]] = graph.add_constant("extents/" + value.name, t);
  }
  for (Node& n : graph.nodes)
    for (ValueId& v : n.in)
      if (const auto at = known.find(v); at != known.end()) v = at->second;
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
