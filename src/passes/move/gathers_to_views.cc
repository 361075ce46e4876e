#include "passes/move/gathers_to_views.h"

#include <algorithm>
#include <optional>

#include "eval/interpreter.h"
#include "ops/infer.h"
#include "passes/context/builder.h"

namespace situ {
namespace {

// Places first, first + step .. on one axis.
struct Places {
  int64_t first = 0, step = 1, count = 1;
};

// The grid that `tuples` [count][axes] walk through, last axis innermost, in `extents`; nothing: they do not, or lie
// outside.
std::optional<std::vector<Places>> grid_of(std::vector<int64_t> tuples, const std::vector<int64_t>& extents) {
  const size_t axes = extents.size();
  if (tuples.empty()) return std::nullopt;
  const size_t count = tuples.size() / axes;
  for (size_t i = 0; i < tuples.size(); ++i) {
    const int64_t extent = extents[i % axes];
    if (tuples[i] < 0) tuples[i] += extent;
    if (tuples[i] < 0 || tuples[i] >= extent) return std::nullopt;  // the kernel says so
  }
  std::vector<Places> grid(axes);
  size_t inner = 1;  // tuples from one place of an axis to the next
  for (size_t a = axes; a-- > 0;) {
    auto place = [&](size_t i) { return tuples[i * inner * axes + a]; };
    Places& p = grid[a];
    p.first = place(0);
    if (2 * inner <= count && place(1) > p.first) p.step = place(1) - p.first;
    size_t n = 1;
    while ((n + 1) * inner <= count && place(n) == p.first + static_cast<int64_t>(n) * p.step) ++n;
    p.count = static_cast<int64_t>(n);
    inner *= n;
  }
  if (inner != count) return std::nullopt;
  for (size_t t = 0; t < count; ++t) {
    size_t rest = t;
    for (size_t a = axes; a-- > 0; rest /= static_cast<size_t>(grid[a].count))
      if (tuples[t * axes + a] !=
          grid[a].first + static_cast<int64_t>(rest % static_cast<size_t>(grid[a].count)) * grid[a].step)
        return std::nullopt;
  }
  return grid;
}

// Extents of axes [first, first + count), if they are known.
std::optional<std::vector<int64_t>> extents_of(const Shape& x, size_t first, size_t count) {
  std::vector<int64_t> extents;
  for (size_t i = first; i < first + count; ++i) {
    if (i >= x.size() || !x[i].is_const()) return std::nullopt;
    extents.push_back(x[i].value());
  }
  return extents;
}

// What a gather chooses of its data: a grid of places on the axes from `axis` on, which stay.
struct Choice {
  size_t axis = 0;
  std::vector<Places> grid;
  std::vector<int64_t> extents;
};

std::optional<Choice> choice_of(const Graph& graph, const Node& n) {
  const bool tuples = n.is("GatherND");
  if ((!tuples && !n.is("Gather")) || n.in.size() != 2 || graph.values[n.in[0]].constant.present() ||
      !graph.values[n.out[0]].info.ranked)
    return std::nullopt;
  const Shape &x = graph.values[n.in[0]].info.shape, &indices = graph.values[n.in[1]].info.shape;
  const std::optional<std::vector<int64_t>> known = fixed_integers(graph, n.in[1]);
  if (!known || known->empty() || indices.empty()) return std::nullopt;
  int64_t axis = tuples ? 0 : n.attr_int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(x.size());
  if (axis < 0 || (tuples ? n.attr_int("batch_dims", 0) != 0 : indices.size() != 1)) return std::nullopt;
  const std::optional<std::vector<int64_t>> extents =
      extents_of(x, static_cast<size_t>(axis), tuples ? static_cast<size_t>(indices.back().value()) : 1);
  if (!extents) return std::nullopt;
  const std::optional<std::vector<Places>> grid = grid_of(*known, *extents);
  if (!grid) return std::nullopt;
  return Choice{static_cast<size_t>(axis), *grid, *extents};
}

// The places begin .. end - 1 on one axis, as far as they are known before the step.
struct Span {
  int64_t axis;
  Dim begin, end;
};

// What a gather by Range(begin, end, 1) chooses, where all of it lies within the axis. Not of a table with an extent
// that no step changes: where its rows follow the past, each sequence of a step reads other ones, which a view cannot.
std::optional<Span> span_of(const Graph& graph, const Node& n) {
  if (!n.is("Gather") || n.in.size() != 2 || graph.values[n.in[0]].constant.present()) return std::nullopt;
  const Node* range = graph.producer(n.in[1]);
  while (range && range->is("Cast")) range = graph.producer(range->in[0]);
  if (!range || !range->is("Range")) return std::nullopt;
  const auto begin = content_of(graph, *range, 0), end = content_of(graph, *range, 1),
             step = content_of(graph, *range, 2);
  if (!begin || !end || !step || step->front() != Dim(1)) return std::nullopt;
  const Shape& x = graph.values[n.in[0]].info.shape;
  const Result<int> axis = normalize_axis(n.attr_int("axis", 0), static_cast<int>(x.size()));
  if (!axis.is_ok() || x[static_cast<size_t>(*axis)].is_const()) return std::nullopt;
  const Span span{*axis, begin->front(), end->front()};
  const bool inside = span.begin.lower_bound() >= 0 && (span.end - span.begin).lower_bound() >= 0 &&
                      (x[static_cast<size_t>(*axis)] - span.end).lower_bound() >= 0;
  return inside ? std::optional(span) : std::nullopt;
}

void slice_span(Graph& graph, Builder& builder, const Node& gather, const Span& span) {
  builder.start(gather);
  const ValueId begin = graph.add_shape(gather.name + "/begin", {span.begin}),
                end = graph.add_shape(gather.name + "/end", {span.end});
  builder.op("Slice", {gather.in[0], begin, end, builder.constant_i64({span.axis})}, gather.out[0]);
}

}  // namespace

Status gathers_to_views(Graph& graph) {
  Builder builder(graph);
  const std::vector<Node> nodes = graph.nodes;
  for (const Node& n : nodes) {
    if (const std::optional<Span> span = span_of(graph, n)) {
      slice_span(graph, builder, n, *span);
      continue;
    }
    const std::optional<Choice> choice = choice_of(graph, n);
    if (!choice) {
      builder.keep(n);
      continue;
    }
    builder.start(n);
    std::vector<int64_t> begins, ends, axes, steps;
    Shape sliced = graph.values[n.in[0]].info.shape;
    for (size_t a = 0; a < choice->grid.size(); ++a) {
      const Places& p = choice->grid[a];
      if (p.count == choice->extents[a]) continue;
      const size_t axis = choice->axis + a;
      begins.push_back(p.first);
      ends.push_back(p.first + (p.count - 1) * p.step + 1);
      axes.push_back(static_cast<int64_t>(axis));
      steps.push_back(p.step);
      sliced[axis] = Dim(p.count);
    }
    const Shape result = graph.values[n.out[0]].info.shape;
    ValueId x = n.in[0];
    if (!axes.empty()) {
      std::vector<ValueId> in{x, builder.constant_i64(begins), builder.constant_i64(ends), builder.constant_i64(axes)};
      if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; }))
        in.push_back(builder.constant_i64(steps));
      x = builder.op("Slice", in, sliced == result ? n.out[0] : kNoValue);
      if (x != n.out[0]) graph.values[x].info = {graph.values[n.in[0]].info.type, true, sliced, {}};
    }
    if (x != n.out[0]) builder.op("Reshape", {x, graph.add_shape(n.name + "/dims", result)}, n.out[0]);
  }
  return builder.finish();
}

}  // namespace situ
