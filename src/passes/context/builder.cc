#include "passes/context/builder.h"

#include "ops/op.h"

namespace situ {
namespace {
// Internal nodes use the newest signatures (axes, split ... as operands).
constexpr int kInternalOpset = 24;
}  // namespace

ValueId Builder::new_value(const std::string& suffix) {
  return graph_.add_value(origin_name_ + "/" + suffix + (counter_ ? "_" + std::to_string(counter_) : ""));
}

ValueId Builder::op(const std::string& name, std::vector<ValueId> in, ValueId result, const std::string& domain) {
  Node n;
  n.op = name;
  n.domain = domain;
  n.opset = domain.empty() ? kInternalOpset : 1;
  n.in = std::move(in);
  n.out.push_back(result != kNoValue ? result : new_value(name));
  n.name = origin_name_ + "/" + name + (counter_ ? "_" + std::to_string(counter_) : "");
  ++counter_;
  done_.push_back(std::move(n));
  return done_.back().out[0];
}

ValueId Builder::again(const Node& like, std::vector<ValueId> in, ValueId result) {
  const ValueId y = op(like.op, std::move(in), result, like.domain);
  last().attrs = like.attrs;
  last().opset = like.opset;
  last().mixed_floats = like.mixed_floats;
  return y;
}

ValueId Builder::constant_i64(const std::vector<int64_t>& values) {
  const ValueId id =
      graph_.add_constant(origin_name_ + "/const_" + std::to_string(counter_++), Tensor::vector_i64(values));
  std::vector<Dim> content(values.begin(), values.end());
  graph_.values[id].info.content = std::move(content);
  return id;
}

ValueId Builder::reshape(ValueId x, const std::vector<int64_t>& target, ValueId result) {
  return op("Reshape", {x, constant_i64(target)}, result);
}

ValueId Builder::cast(ValueId x, DType to, ValueId result) {
  const ValueId y = op("Cast", {x}, result);
  last().set_int("to", static_cast<int64_t>(to));
  graph_.values[y].info = graph_.values[x].info;
  graph_.values[y].info.type = to;
  return y;
}

ValueId Builder::transpose(ValueId x, std::vector<int64_t> perm, ValueId result) {
  const ValueId y = op("Transpose", {x}, result);
  last().set_ints("perm", std::move(perm));
  return y;
}

ValueId Builder::split_heads(ValueId x, int64_t heads, int64_t head_size) {
  return transpose(reshape(x, {0, 0, heads, head_size}), {0, 2, 1, 3});
}

ValueId Builder::merge_heads(ValueId x, int64_t width, ValueId result) {
  return reshape(transpose(x, {0, 2, 1, 3}), {0, 0, width}, result);
}

Status Builder::finish() {
  graph_.nodes = std::move(done_);
  SITU_RETURN_IF_ERROR(resolve_ops(graph_));
  return graph_.sort();
}

}  // namespace situ
