// Reshapes and transposes that take the axes of a row-wise operator's result apart and join them in another order:
//   [Reshape](Transpose(Reshape(Transpose(Reshape(f(x))))))  ->  Reshape(Transpose(f(Reshape(x))))
// where the one Reshape splits axes and the other one joins them. f then writes its rows in the order in which they are
// joined: nothing is moved. So does the connector of SmolVLM (pixel shuffle: 2 x 2 rows become one). A Slice between f
// and the first Reshape, which leaves out the row of the class, moves before f, as in InternVL.
#include <algorithm>
#include <optional>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

constexpr size_t kMostAxes = 6;  // of which the planner tries every order

// Axes split into parts so that each reshape and transpose takes and joins whole parts.
class Parts {
 public:
  explicit Parts(const std::vector<int64_t>& dims) : dims_(dims.size()) {
    for (size_t a = 0; a < dims.size(); ++a)
      if (dims[a] != 1) {
        dims_[a] = {sizes_.size()};
        order_.push_back(sizes_.size());
        sizes_.push_back(dims[a]);
      }
  }
  void transpose(const std::vector<int64_t>& perm) {
    std::vector<std::vector<size_t>> dims;
    for (const int64_t a : perm) dims.push_back(dims_[static_cast<size_t>(a)]);
    dims_ = std::move(dims);
  }
  // False: an axis would be no product of whole parts, however they are split.
  bool reshape(const std::vector<int64_t>& dims) {
    std::vector<size_t> flat = order();
    std::vector<std::vector<size_t>> next(dims.size());
    size_t at = 0;
    for (size_t a = 0; a < dims.size(); ++a)
      for (int64_t left = dims[a]; left > 1;) {
        if (at == flat.size()) return false;
        const size_t part = flat[at];
        if (left % sizes_[part] == 0) {
          left /= sizes_[part];
          ++at;
        } else {
          if (sizes_[part] % left != 0) return false;
          const size_t inner = sizes_.size();  // part becomes its outer one
          sizes_.push_back(sizes_[part] / left);
          sizes_[part] = left;
          order_.insert(std::find(order_.begin(), order_.end(), part) + 1, inner);
          flat.insert(flat.begin() + static_cast<long>(at) + 1, inner);
          left = 1;
          ++at;
        }
        next[a].push_back(part);
      }
    dims_ = std::move(next);
    return at == flat.size();
  }
  std::vector<size_t> order() const {  // as they stand now
    std::vector<size_t> flat;
    for (const auto& d : dims_) flat.insert(flat.end(), d.begin(), d.end());
    return flat;
  }
  const std::vector<size_t>& first_order() const { return order_; }
  int64_t size(size_t part) const { return sizes_[part]; }

 private:
  std::vector<int64_t> sizes_;             // by part
  std::vector<size_t> order_;              // of the parts, as they stood at first
  std::vector<std::vector<size_t>> dims_;  // parts of each axis, as they stand now
};

struct Split {
  int made_by = -1;           // the row-wise node
  int slice = -1;             // of its result, by whole rows; -1: none
  std::vector<int64_t> dims;  // of what is left, split
  std::vector<int64_t> perm;  // the axes in the order in which they are joined
};

bool same_shape(const Graph& graph, ValueId a, ValueId b) {
  return graph.values[a].info.shape == graph.values[b].info.shape;
}

class AxisSplitter {
 public:
  explicit AxisSplitter(PassContext& context) : graph_(context.graph), users_(context.graph.users()) {}

  std::optional<Split> find(const Node& last) const {
    if (!orders_axes(last) || !known(last.out[0])) return std::nullopt;
    if (const auto& readers = users_[last.out[0]];
        readers.size() == 1 && orders_axes(graph_.nodes[static_cast<size_t>(readers[0].first)]))
      return std::nullopt;  // found with that one
    std::vector<const Node*> chain;
    const Node* n = &last;
    int transposes = 0;
    while (orders_axes(*n)) {
      transposes += n->is("Transpose");
      chain.insert(chain.begin(), n);
      n = lone_producer(n->in[0]);
      if (!n) return std::nullopt;
    }
    const std::vector<int64_t> dims = shape_values(graph_.values[n->out[0]].info.shape);
    Split split;
    if (leaves_whole_rows(*n)) {
      split.slice = static_cast<int>(n - graph_.nodes.data());
      n = lone_producer(n->in[0]);
    }
    if (transposes == 0 || !n || !row_wise(*n)) return std::nullopt;
    Parts parts(dims);
    const size_t last_axis = parts.first_order().empty() ? 0 : parts.first_order().back();
    for (const Node* step : chain) {
      const std::vector<int64_t> to = shape_values(graph_.values[step->out[0]].info.shape);
      if (step->is("Transpose"))
        parts.transpose(step->permutation(to.size()));
      else if (!parts.reshape(to))
        return std::nullopt;
    }
    const std::vector<size_t>& first = parts.first_order();
    // Axes that are moved whole once are strides, which need no splitting.
    const auto axes = dims.end() - dims.begin() - std::count(dims.begin(), dims.end(), 1);
    if (transposes < 2 && std::ssize(first) == axes) return std::nullopt;
    // Rows stay whole: the last axis is one part.
    if (first.size() > kMostAxes || dims.back() == 1 || first.back() != last_axis ||
        parts.size(last_axis) != dims.back())
      return std::nullopt;
    for (const size_t part : first) split.dims.push_back(parts.size(part));
    for (const size_t part : parts.order())
      split.perm.push_back(std::find(first.begin(), first.end(), part) - first.begin());
    if (std::is_sorted(split.perm.begin(), split.perm.end())) return std::nullopt;
    split.made_by = static_cast<int>(n - graph_.nodes.data());
    return split;
  }

 private:
  static bool orders_axes(const Node& n) { return n.is("Reshape") || n.is("Transpose"); }
  bool known(ValueId v) const {
    const ValueInfo& info = graph_.values[v].info;
    return info.ranked && !info.shape.empty() && shape_is_const(info.shape) && shape_count(info.shape).value() > 0;
  }
  // What makes x for one reader alone.
  const Node* lone_producer(ValueId x) const {
    return known(x) && users_[x].size() == 1 && !graph_.is_output(x) ? graph_.producer(x) : nullptr;
  }
  // A Slice by constants of other axes than the last one.
  bool leaves_whole_rows(const Node& n) const {
    if (!n.is("Slice") || n.in.size() < 4 || !known(n.out[0])) return false;
    for (size_t i = 1; i < n.in.size(); ++i)
      if (n.in[i] == kNoValue || !graph_.values[n.in[i]].constant.present()) return false;
    const int64_t rank = static_cast<int64_t>(graph_.values[n.out[0]].info.shape.size());
    const std::vector<int64_t> axes = graph_.values[n.in[3]].constant.to_i64();
    return std::none_of(axes.begin(), axes.end(), [&](int64_t a) { return a == -1 || a == rank - 1; });
  }
  // Of rows along the last axis of operands as large as the result; the others are constants of a row.
  bool row_wise(const Node& n) const {
    if (n.is("Add") || n.is("Sub") || n.is("Mul"))
      return known(n.out[0]) && std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) {
               return same_shape(graph_, v, n.out[0]) ||
                      (graph_.values[v].constant.present() && graph_.values[v].info.shape.size() <= 1);
             });
    if (!n.is("LayerNormalization") && !n.is("RMSNormalization")) return false;
    const int64_t rank = static_cast<int64_t>(graph_.values[n.in[0]].info.shape.size()), axis = n.attr_int("axis", -1);
    return n.out.size() == 1 && (axis == -1 || axis == rank - 1) && known(n.out[0]) &&
           std::all_of(n.in.begin() + 1, n.in.end(), [&](ValueId v) {
             return v == kNoValue || (graph_.values[v].constant.present() && graph_.values[v].info.shape.size() == 1);
           });
  }

  const Graph& graph_;
  const std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status split_axes(PassContext& context) {
  Graph& graph = context.graph;
  graph.rebuild_links();
  const AxisSplitter splitter(context);
  std::map<size_t, Split> splits;  // by the last node of the chain
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const std::optional<Split> split = splitter.find(graph.nodes[i])) splits[i] = *split;
  if (splits.empty()) return Status::ok();
  Builder builder(graph);
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto at = splits.find(i);
    if (at == splits.end()) {
      builder.keep(nodes[i]);
      continue;
    }
    const Split& split = at->second;
    const Node& made_by = nodes[static_cast<size_t>(split.made_by)];
    builder.start(nodes[i]);
    std::vector<ValueId> in = made_by.in;
    for (ValueId& x : in) {
      if (x == kNoValue || !same_shape(graph, x, made_by.out[0])) continue;
      if (split.slice >= 0) {
        const Node& slice = nodes[static_cast<size_t>(split.slice)];
        std::vector<ValueId> of = slice.in;
        of[0] = x;
        x = builder.again(slice, of);
      }
      x = builder.reshape(x, split.dims);
    }
    const ValueId rows = builder.again(made_by, in);
    if (made_by.attr_int("axis", -1) >= 0) builder.last().set_int("axis", -1);
    builder.reshape(builder.transpose(rows, split.perm), shape_values(graph.values[nodes[i].out[0]].info.shape),
                    nodes[i].out[0]);
    context.note("axes split", made_by.name, "rows are written in the order in which they are joined");
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
