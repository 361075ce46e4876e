// A part of a stack of values is that value, as states of all layers that a graph keeps in one tensor are read:
//   Gather(Concat(Unsqueeze(x0), Unsqueeze(x1), ..), i)  ->  xi
//   Gather(ScatterND(stack, [[j]], u), i)                ->  Gather(stack, i), or u where i is j
//   Gather(ScatterND(stack, [[j, p], ..], u), i)         ->  Gather(stack, i), or where i is j
//                                                            ScatterND(Gather(stack, i), [[p], ..], u)
// along the first axis, with indices that are constant. The stack itself is made by nobody then.
#include <algorithm>
#include <map>

#include "ops/infer.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

class StackReader {
 public:
  explicit StackReader(Graph& graph) : graph_(graph), builder_(graph) {}

  Status run() {
    const auto reads = [&](const Node& n) { return part_read(n).has_value(); };
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), reads)) return Status::ok();
    bool any = false;
    const std::vector<Node> nodes = graph_.nodes;
    for (const Node& n : nodes) {
      const std::optional<int64_t> number = part_read(n);
      const ValueId part = number ? part_of_stack(n, *number) : kNoValue;
      if (part == kNoValue) {
        builder_.keep(n);
        continue;
      }
      any = true;
      const Shape& y = shape(n.out[0]);
      builder_.op(y == shape(part) ? "Identity" : "Reshape",
                  y == shape(part) ? std::vector<ValueId>{part}
                                   : std::vector<ValueId>{part, graph_.add_shape(n.name + "/dims", y)},
                  n.out[0]);
    }
    if (!any) return Status::ok();
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

 private:
  // What a ScatterND writes of one part: all of it (no places), or these places of it.
  struct Written {
    int64_t part = 0;
    std::vector<int64_t> places;  // [count, width], without that of the part
    int64_t width = 0;
  };

  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  // The number of the part that a Gather reads of a stack.
  std::optional<int64_t> part_read(const Node& n) const {
    if (!n.is("Gather") || n.in.size() != 2 || n.attr_int("axis", 0) != 0) return std::nullopt;
    const Shape& stack = shape(n.in[0]);
    const Node* from = graph_.producer(n.in[0]);
    const Value& read = graph_.values[n.out[0]];
    if (read.info.content || read.constant.present()) return std::nullopt;
    if (!from || !(from->is("Concat") || from->is("ScatterND")) || stack.empty() || !stack[0].is_const())
      return std::nullopt;
    const Value& index = graph_.values[n.in[1]];
    const std::optional<std::vector<int64_t>> at =
        known_i64(&index.info, index.constant.present() ? &index.constant : nullptr);
    if (!at || at->size() != 1 || (*at)[0] < -stack[0].value() || (*at)[0] >= stack[0].value()) return std::nullopt;
    return (*at)[0] < 0 ? (*at)[0] + stack[0].value() : (*at)[0];
  }

  // The operand of a Concat of parts that is part `i`.
  ValueId stacked(const Node& concat, int64_t i) const {
    const int64_t axis = concat.attr_int("axis", 0);
    if (axis != 0 && axis != -std::ssize(shape(concat.out[0]))) return kNoValue;
    if (shape(concat.out[0])[0] != Dim(std::ssize(concat.in))) return kNoValue;
    for (const ValueId v : concat.in)
      if (shape(v).empty() || shape(v)[0] != Dim(1)) return kNoValue;
    return concat.in[static_cast<size_t>(i)];
  }

  const std::optional<Written>& written_by(const Node& scatter) {
    const auto known = written_.find(scatter.out[0]);
    return known != written_.end() ? known->second
                                   : written_.emplace(scatter.out[0], read_indices(scatter)).first->second;
  }
  std::optional<Written> read_indices(const Node& scatter) const {
    const Tensor& indices = graph_.values[scatter.in[1]].constant;
    const Shape& stack = shape(scatter.in[0]);
    if (scatter.in.size() != 3 || scatter.attr_string("reduction", "none") != "none" || !indices.present() ||
        indices.rank() == 0 || indices.count() == 0)
      return std::nullopt;
    const std::vector<int64_t> at = indices.to_i64();
    const auto width = static_cast<size_t>(indices.dims().back());
    Written w;
    w.width = static_cast<int64_t>(width) - 1;
    for (size_t i = 0; i < at.size(); ++i) {
      if (i % width != 0) {
        w.places.push_back(at[i]);
        continue;
      }
      const int64_t part = at[i] < 0 ? at[i] + stack[0].value() : at[i];
      if (i > 0 && part != w.part) return std::nullopt;
      w.part = part;
    }
    if (width == 1 && at.size() > 1) return std::nullopt;
    return w;
  }

  // Part `i` without the stack's axis, or with it as 1.
  ValueId part_of_stack(const Node& gather, int64_t i) {
    builder_.start(gather);
    std::vector<const Node*> scatters;  // that write places of the part, the last one first
    ValueId stack = gather.in[0], part = kNoValue;
    while (part == kNoValue) {
      if (const auto known = parts_.find({stack, i}); known != parts_.end()) {
        part = known->second;
        break;
      }
      const Node* n = graph_.producer(stack);
      if (n && n->is("Concat")) {
        part = stacked(*n, i);
        break;
      }
      if (!n || !n->is("ScatterND") || !written_by(*n)) break;
      const Written* w = &*written_by(*n);
      if (w->part == i && w->width == 0) part = n->in[2];
      if (w->part == i && w->width > 0) scatters.push_back(n);
      stack = n->in[0];
    }
    if (part == kNoValue && stack == gather.in[0]) return kNoValue;
    Shape rest = shape(gather.in[0]);
    rest.erase(rest.begin());
    if (part == kNoValue) {
      part =
          described(builder_.op("Gather", {stack, graph_.add_constant(gather.name + "/part", Tensor::scalar_i64(i))}),
                    gather.in[0], rest);
    } else if (shape(part) != rest) {
      part = described(builder_.op("Reshape", {part, graph_.add_shape(gather.name + "/dims", rest)}), part, rest);
    }
    for (; !scatters.empty(); scatters.pop_back()) {
      part = written_again(part, *scatters.back());
      parts_.try_emplace({scatters.back()->out[0], i}, part);
    }
    parts_.try_emplace({gather.in[0], i}, part);
    return part;
  }

  // Of one part what a ScatterND writes of the stack.
  ValueId written_again(ValueId part, const Node& scatter) {
    const Written w = *written_by(scatter);
    std::vector<int64_t> dims = graph_.values[scatter.in[1]].constant.dims();
    dims.back() = w.width;
    Tensor places = Tensor::allocate(DType::kI64, dims);
    for (size_t i = 0; i < w.places.size(); ++i) places.view().as<int64_t>()[i] = w.places[i];
    const ValueId to = graph_.add_constant(scatter.name + "/places", places);
    return described(builder_.again(scatter, {part, to, scatter.in[2]}), part, shape(part));
  }

  ValueId described(ValueId v, ValueId like, Shape s) {
    graph_.values[v].info = {graph_.values[like].info.type, true, std::move(s), {}};
    return v;
  }

  Graph& graph_;
  Builder builder_;
  std::map<std::pair<ValueId, int64_t>, ValueId> parts_;
  std::map<ValueId, std::optional<Written>> written_;  // by the result of a ScatterND
};

}  // namespace

Status read_stacks(PassContext& context) { return StackReader(context.graph).run(); }

}  // namespace situ
