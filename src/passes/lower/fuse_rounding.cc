// What becomes an integer and a number again at once, as statically quantised exports have it around every operator:
//   DequantizeLinear(QuantizeLinear(x, scale, zero), scale, zero)  ->  situ.RoundLinear(x, scale, zero)
// with one constant scale: elementwise, so that other passes move it past what only moves.
#include <algorithm>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {
namespace {

class RoundingFuser {
 public:
  explicit RoundingFuser(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    int count = 0;
    for (Node& n : graph_.nodes) count += fuse(n);
    if (count == 0) return Status::ok();
    context_.note("rounding", "", std::to_string(count) + " values rounded to integers and back");
    graph_.rebuild_links();
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

 private:
  const Tensor& constant(ValueId v) const { return graph_.values[v].constant; }

  // One number each, and the same.
  bool same(ValueId a, ValueId b) const {
    if ((a == kNoValue) != (b == kNoValue)) return false;
    if (a == kNoValue) return true;
    const Tensor &x = constant(a), &y = constant(b);
    return x.present() && y.present() && x.type() == y.type() && x.count() == 1 && y.count() == 1 &&
           std::equal(x.view().data, x.view().data + x.bytes(), y.view().data);
  }
  // As a number without dims: it changes the rank of nothing.
  ValueId number(ValueId v) {
    return constant(v).rank() == 0 ? v
                                   : graph_.add_constant(graph_.values[v].name + "/number", constant(v).reshaped({}));
  }

  bool fuse(Node& back) {
    if (!back.is("DequantizeLinear") || back.in.size() < 2) return false;
    const int p = graph_.values[back.in[0]].producer;
    if (p < 0 || !graph_.nodes[static_cast<size_t>(p)].is("QuantizeLinear")) return false;
    const Node& there = graph_.nodes[static_cast<size_t>(p)];
    const auto zero = [](const Node& n) { return n.has_input(2) ? n.in[2] : kNoValue; };
    if (!same(there.in[1], back.in[1]) || !same(zero(there), zero(back)) ||
        graph_.values[there.in[0]].info.type != graph_.values[back.out[0]].info.type)
      return false;
    const ValueInfo& digits = graph_.values[back.in[0]].info;
    const DType type = digits.type;
    if (type != DType::kU8 && type != DType::kI8 && type != DType::kU16 && type != DType::kI16) return false;
    const ValueId x = there.in[0], z = zero(there);
    const ValueId scale = number(there.in[1]), offset = z == kNoValue ? kNoValue : number(z);
    back.in = {x, scale};
    if (offset != kNoValue) back.in.push_back(offset);
    back.domain = "situ";
    back.op = "RoundLinear";
    back.opset = 1;
    back.attrs.clear();
    back.set_int("digits", static_cast<int64_t>(type));
    return true;
  }

  PassContext& context_;
  Graph& graph_;
};

}  // namespace

Status fuse_rounding(PassContext& context) { return RoundingFuser(context).run(); }

}  // namespace situ
