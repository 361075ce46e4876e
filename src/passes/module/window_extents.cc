#include "passes/module/window_extents.h"

#include <algorithm>
#include <optional>

namespace situ {
namespace {

constexpr size_t kRank = 3, kAxis = 2;  // [1, C, rows], of what is convolved
constexpr int64_t kMostTaps = 4096;
constexpr size_t kMostValues = 16;  // between an extent and where a part begins

class WindowReader {
 public:
  WindowReader(const Graph& graph, const Users& users) : graph_(graph), users_(users) {}

  int64_t rows(ValueId past) {
    const Node* joins = nullptr;
    std::vector<ValueId> extents;
    for (const auto& [user, operand] : users_[past]) {
      if (user < 0) return 0;
      const Node& n = node(user);
      if (n.is("Shape")) {
        extents.push_back(n.out[0]);
      } else if (!joins && operand == 0 && n.is("Concat") && n.in.size() == 2 && n.in[1] != past &&
                 along_rows(n.attr_int("axis", 0))) {
        joins = &n;
      } else {
        return 0;
      }
    }
    if (!joins || extents.empty() || graph_.is_output(past)) return 0;
    int64_t most = 0;
    const Node* keeps = nullptr;
    for (const auto& [user, operand] : users_[joins->out[0]]) {
      if (user < 0 || operand != 0) return 0;
      const Node& n = node(user);
      if (n.is("Slice") && graph_.is_output(n.out[0]) && users_[n.out[0]].size() <= 1 && !keeps) {
        keeps = &n;
        continue;
      }
      const int64_t read = rows_before(behind_casts(n));
      if (read <= 0) return 0;
      most = std::max(most, read);
    }
    const bool all_kept = keeps && graph_.values[keeps->out[0]].info.shape.size() == kRank &&
                          graph_.values[keeps->out[0]].info.shape[kAxis] == graph_.values[past].info.shape[kAxis];
    return all_kept && begins_at(extents, *keeps) ? most : 0;
  }

 private:
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  static bool along_rows(int64_t axis) { return axis == int64_t{kAxis} || axis == int64_t{kAxis} - int64_t{kRank}; }
  std::optional<int64_t> number(const Node& n, size_t operand) const {
    if (!n.has_input(operand)) return std::nullopt;
    const Tensor& t = graph_.values[n.in[operand]].constant;
    return t.present() && t.count() == 1 ? std::optional(t.to_i64()[0]) : std::nullopt;
  }

  // The node that alone reads what a chain of Casts makes of a value.
  const Node& behind_casts(const Node& first) const {
    const Node* n = &first;
    while (n->is("Cast") && users_[n->out[0]].size() == 1 && users_[n->out[0]][0].first >= 0)
      n = &node(users_[n->out[0]][0].first);
    return *n;
  }

  // The rows before the last one that a convolution reads whose last result alone is used.
  int64_t rows_before(const Node& conv) const {
    if (!conv.is("Conv") || conv.in.size() < 2 || users_[conv.out[0]].size() != 1) return 0;
    const Tensor& taps = graph_.values[conv.in[1]].constant;
    const std::vector<int64_t> pads = conv.attr_ints("pads"), strides = conv.attr_ints("strides"),
                               dilations = conv.attr_ints("dilations");
    const auto all = [](const std::vector<int64_t>& list, int64_t x) {
      return std::all_of(list.begin(), list.end(), [x](int64_t i) { return i == x; });
    };
    const std::string pad = conv.attr_string("auto_pad", "NOTSET");
    if (!taps.present() || taps.rank() != kRank || !all(pads, 0) || !all(strides, 1) || !all(dilations, 1) ||
        (pad != "NOTSET" && pad != "VALID"))
      return 0;
    const int64_t count = taps.dims()[kAxis];
    const int user = users_[conv.out[0]][0].first;
    if (user < 0 || count < 2 || count > kMostTaps) return 0;
    const Node& last = behind_casts(node(user));
    const std::optional<int64_t> begin = number(last, 1), end = number(last, 2), axis = number(last, 3),
                                 step = last.has_input(4) ? number(last, 4) : std::optional<int64_t>(1);
    const bool one = last.is("Slice") && begin == int64_t{-1} && end && *end > kMostTaps && axis && along_rows(*axis) &&
                     step == int64_t{1};
    return one ? count - 1 : 0;
  }

  // The extents say nothing but where the part begins that is kept, and no constant comes to them but a sign.
  bool begins_at(std::vector<ValueId> open, const Node& keeps) const {
    if (const auto axis = number(keeps, 3); !axis || !along_rows(*axis)) return false;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open.size() > kMostValues || graph_.is_output(open[i])) return false;
      for (const auto& [user, operand] : users_[open[i]]) {
        if (user < 0) return false;
        const Node& n = node(user);
        if (&n == &keeps) {
          if (operand != 1) return false;
        } else if (n.is("Squeeze") || n.is("Neg") || n.is("Reshape") || n.is("Unsqueeze") || n.is("Identity") ||
                   n.is("Gather") || n.is("Cast") || n.is("Slice")) {
          if (operand != 0) return false;
          open.push_back(n.out[0]);
        } else {
          return false;
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const Users& users_;
};

}  // namespace

// How many places of an axis are read or written, each by its number: what the layers of a model keep in one tensor.
static int64_t places_used(const Graph& graph, const Users& users, ValueId past, size_t axis) {
  const int64_t rank = std::ssize(graph.values[past].info.shape);
  std::vector<ValueId> open{past};
  int64_t used = 0;
  bool kept = false;
  for (size_t i = 0; i < open.size(); ++i) {
    kept = kept || (i > 0 && graph.is_output(open[i]));
    for (const auto& [user, operand] : users[open[i]]) {
      if (user < 0) continue;
      const Node& n = graph.nodes[static_cast<size_t>(user)];
      const bool reads = n.is("Gather") && operand == 0,
                 writes = n.is("ScatterElements") && operand == 0 && n.attr_string("reduction", "none") == "none";
      if (writes || n.is("Identity")) open.push_back(n.out[0]);
      if (n.is("Identity")) continue;
      const int64_t given = n.attr_int("axis", 0);
      if ((!reads && !writes) || !n.has_input(1)) return 0;
      const Tensor& places = graph.values[n.in[1]].constant;
      if ((given < 0 ? given + rank : given) != static_cast<int64_t>(axis) || !places.present()) return 0;
      for (const int64_t at : places.to_i64()) {
        if (at < 0) return 0;
        used = std::max(used, at + 1);
      }
    }
  }
  return kept ? used : 0;
}

// Whether the extent is a name that no other input has.
static bool is_own(const Graph& graph, ValueId past, const Dim& rows) {
  return rows.lone_symbol() >= kFirstFileSymbol &&
         std::all_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
           const Shape& other = graph.values[v].info.shape;
           return v == past || std::find(other.begin(), other.end(), rows) == other.end();
         });
}
static void bind_extent(Graph& graph, const Dim rows, int64_t count) {
  for (const auto* list : {&graph.inputs, &graph.outputs})
    for (const ValueId v : *list)
      for (Dim& d : graph.values[v].info.shape) d = d.substitute(rows.lone_symbol(), Dim(count));
}

bool bind_window(Graph& graph, const Users& users, ValueId past, int axis) {
  const Shape& shape = graph.values[past].info.shape;
  if (shape.size() != kRank || axis != static_cast<int>(kAxis) || !is_own(graph, past, shape[kAxis])) return false;
  const int64_t read = WindowReader(graph, users).rows(past);
  if (read > 0) bind_extent(graph, shape[kAxis], read);
  return read > 0;
}

bool bind_numbered(Graph& graph, const Users& users, ValueId past, size_t axis) {
  const Dim rows = graph.values[past].info.shape[axis];
  const int64_t used = is_own(graph, past, rows) ? places_used(graph, users, past, axis) : 0;
  if (used > 0) bind_extent(graph, rows, used);
  return used > 0;
}

}  // namespace situ
