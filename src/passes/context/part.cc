#include "passes/context/part.h"

namespace situ {

// The constant `v` has one number.
static std::optional<int64_t> integer(const Graph& graph, ValueId v) {
  const Tensor& t = graph.values[v].constant;
  return t.present() && t.count() == 1 ? std::optional(t.to_i64()[0]) : std::nullopt;
}

std::optional<AxisPart> part_of(const Graph& graph, const Node& n, size_t o) {
  const auto& values = graph.values;
  const Shape& whole = values[n.in[0]].info.shape;
  const auto from_front = [&](int64_t axis) {
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(whole.size()) : axis);
  };
  if (n.is("Split")) {
    AxisPart part{from_front(n.attr_int("axis", 0)), Dim(0)};
    for (size_t i = 0; i < o; ++i) {
      if (!n.has_output(i)) return std::nullopt;
      part.begin = part.begin + values[n.out[i]].info.shape[part.axis];
    }
    return part;
  }
  if (!n.is("Slice") || !n.has_input(1) || !n.has_input(3)) return std::nullopt;
  const std::optional<int64_t> begin = integer(graph, n.in[1]), axis = integer(graph, n.in[3]),
                               step = n.has_input(4) ? integer(graph, n.in[4]) : 1;
  if (!begin || !axis || step != 1) return std::nullopt;
  const size_t at = from_front(*axis);
  return AxisPart{at, *begin < 0 ? whole[at] + Dim(*begin) : Dim(*begin)};
}

}  // namespace situ
