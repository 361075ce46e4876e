#include "passes/states/cache_append.h"

#include <algorithm>
#include <utility>

namespace situ {

void CacheAppender::append(const Node& n, const CacheUpdate& c) {
  builder_.start(n);
  Shape target = graph_.values[c.after].info.shape;
  target[static_cast<size_t>(c.axis)] = tokens();
  const ValueId rows = laid(c.rows, Shape(graph_.values[c.rows].info.shape), c.order, target);
  if (has_other_axes(c)) {
    append_to_past(c, rows, target);
    return;
  }
  builder_.op("Concat", {c.before, rows}, c.after);
  builder_.last().set_int("axis", c.axis);
}

// x [dims] with its axes in another order, and with axes of one element more or less.
ValueId CacheAppender::laid(ValueId x, const Shape& dims, const std::vector<int64_t>& order, const Shape& target,
                            ValueId result) {
  Shape moved;
  for (const int64_t a : order) moved.push_back(dims[static_cast<size_t>(a)]);
  if (!std::is_sorted(order.begin(), order.end())) x = builder_.transpose(x, order);
  if (moved == target && result == kNoValue) return x;
  return builder_.op("Reshape", {x, graph_.add_shape("cache/row", target)}, result);
}

// Whether the update has more or fewer axes than the state, and each of more than one element is one of the other's.
bool CacheAppender::has_other_axes(const CacheUpdate& c) const {
  const ValueInfo &own = graph_.values[c.past].info, &after = graph_.values[c.after].info;
  if (own.type != after.type || own.shape.size() == after.shape.size()) return false;
  for (size_t i = 0; i < own.shape.size(); ++i)
    if (c.moved[i] < 0 && own.shape[i] != Dim(1)) return false;
  for (size_t a = 0; a < after.shape.size(); ++a)
    if (after.shape[a] != Dim(1) && std::count(c.moved.begin(), c.moved.end(), static_cast<int>(a)) != 1) return false;
  return true;
}

void CacheAppender::append_to_past(const CacheUpdate& c, ValueId rows, const Shape& dims) {
  Shape target = graph_.values[c.past].info.shape, after = dims;
  target[static_cast<size_t>(c.past_axis)] = tokens();
  after[static_cast<size_t>(c.axis)] = past() + tokens();
  // The axes of `after`, those of one element first, as the state has them.
  std::vector<int64_t> order, back(after.size());
  for (size_t a = 0; a < after.size(); ++a)
    if (std::find(c.moved.begin(), c.moved.end(), static_cast<int>(a)) == c.moved.end())
      order.push_back(static_cast<int64_t>(a));
  for (const int a : c.moved)
    if (a >= 0) order.push_back(a);
  Shape moved;
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    moved.push_back(after[static_cast<size_t>(order[i])]);
  }
  const ValueId present = builder_.op("Concat", {c.past, laid(rows, dims, order, target)});
  builder_.last().set_int("axis", c.past_axis);
  laid(builder_.op("Reshape", {present, graph_.add_shape("cache/row", moved)}), moved, back, after, c.after);
  std::string& name = graph_.values[c.present].name;
  graph_.values[present].name = name;
  name += "/rows";
  std::replace(graph_.outputs.begin(), graph_.outputs.end(), c.present, present);
}

}  // namespace situ
