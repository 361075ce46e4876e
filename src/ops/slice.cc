// Slice: a range of each axis, any step. Starts and ends are attributes below opset 10, then operands
// (data, starts, ends, axes?, steps?).
#include <algorithm>

#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Bounds that exporters write for "to the end".
constexpr int64_t kHuge = INT32_MAX;
// No axis is longer, so a longer step selects one element like this one, and sums with it do not overflow.
constexpr int64_t kWidestStep = int64_t{1} << 48;

// One sliced axis: elements start, start + step .. (count of them).
struct AxisRange {
  int axis;
  Dim start, count;
  int64_t step;
};

struct SliceOperands {
  std::vector<Dim> starts, ends;
  std::vector<int> axes;
  std::vector<int64_t> steps;
};

template <typename Context>
Status read_operands(const Context& c, SliceOperands* r) {
  const auto fail = [&](const std::string& what) { return c.node.error(what); };
  const auto has = [&](size_t i) { return i < c.in.size() && c.in[i] != nullptr; };
  const bool attributes = !has(1);
  std::optional<std::vector<int64_t>> axes, steps;
  if (attributes) {
    for (int64_t v : c.node.attr_ints("starts")) r->starts.push_back(v);
    for (int64_t v : c.node.attr_ints("ends")) r->ends.push_back(v);
    if (c.node.attr("axes") != nullptr) axes = c.node.attr_ints("axes");
  } else {
    const auto starts = operand_content(c, 1), ends = operand_content(c, 2);
    if (!starts || !ends)
      return fail(std::string("input ") + (starts ? "2 (ends)" : "1 (starts)") + " is not known before the step runs");
    r->starts = *starts;
    r->ends = *ends;
    axes = operand_i64(c, 3);
    steps = operand_i64(c, 4);
    if ((has(3) && !axes) || (has(4) && !steps)) return fail("axes and steps should be constant");
  }
  const size_t count = r->starts.size();
  if (r->ends.size() != count || (axes && axes->size() != count) || (steps && steps->size() != count))
    return fail("starts, ends, axes and steps differ in length");
  const int rank = static_cast<int>(c.in[0]->shape.size());
  for (size_t i = 0; i < count; ++i) {
    Result<int> axis = normalize_axis(axes ? (*axes)[i] : static_cast<int64_t>(i), rank);
    if (!axis.is_ok()) return axis.status().with_context(c.node.label());
    for (int other : r->axes)
      if (other == *axis) return fail("axis " + std::to_string(*axis) + " is given twice");
    r->axes.push_back(*axis);
    const int64_t step = steps ? (*steps)[i] : 1;
    if (step == 0) return fail("step 0 is not valid");
    r->steps.push_back(std::clamp(step, -kWidestStep, kWidestStep));
  }
  return Status::ok();
}

// What may be taken for granted of a bound in symbols on an axis of constant extent (rows up to T of a
// table): that it lies within. The shape function notes it as an assumption, which every step checks.
class Trust {
 public:
  static Trust none() { return Trust(nullptr, false); }
  static Trust noting(InferContext* infer) { return Trust(infer, false); }
  static Trust noted() { return Trust(nullptr, true); }
  bool within(const Dim& bound, const Dim& extent) const {
    return noted_ || (infer_ != nullptr && at_most(*infer_, "bound", bound, extent));
  }

 private:
  Trust(InferContext* infer, bool noted) : infer_(infer), noted_(noted) {}
  InferContext* infer_;
  bool noted_;
};

// min(bound, extent).
Dim clamp_high(const Dim& bound, const Dim& extent, const Trust& trust) {
  if (bound.is_const() && bound.value() >= kHuge && !extent.is_const()) return extent;
  const bool table = !bound.is_const() && extent.is_const();
  if (table && trust.within(bound, extent)) return bound;
  return dim_min(bound, extent);
}

// A start or end as given -> a position in [low, high], counting negative ones from the end of the axis.
Dim position(const Dim& given, const Dim& extent, const Dim& low, const Dim& high, const Trust& trust) {
  if (given.lower_bound() >= 0) return clamp_high(given, high, trust);
  if (given.is_const() && given.value() <= -kHuge && !extent.is_const()) return low;
  const Dim from_end = dim_min(dim_max(given + extent, low), high);
  if (given.upper_bound() < 0) return from_end;
  return dim_select(dim_less(given, 0), from_end, dim_min(given, high));
}

AxisRange axis_range(int axis, const Dim& extent, const Dim& start, const Dim& end, int64_t step, const Trust& trust) {
  const bool up = step > 0;
  const Dim high = up ? extent : extent - Dim(1);
  const Dim first = position(start, extent, 0, high, trust);
  const Dim last = position(end, extent, up ? Dim(0) : Dim(-1), high, trust);
  const Dim length = dim_max(up ? last - first : first - last, 0);
  const Dim stride = up ? step : -step;
  return {axis, first, stride == Dim(1) ? length : dim_div(length + stride - Dim(1), stride), step};
}

}  // namespace

Status infer_slice(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SliceOperands r;
  SITU_RETURN_IF_ERROR(read_operands(c, &r));
  Shape shape = c.input(0).shape;
  for (size_t i = 0; i < r.axes.size(); ++i) {
    Dim& extent = shape[r.axes[i]];
    extent = axis_range(r.axes[i], extent, r.starts[i], r.ends[i], r.steps[i], Trust::noting(&c)).count;
  }
  return emit(c, 0, c.input(0).type, std::move(shape));
}

bool view_slice(ViewContext& c) {
  SliceOperands r;
  if (!read_operands(c, &r).is_ok()) return false;
  SymView v = c.source;
  for (size_t i = 0; i < r.axes.size(); ++i) {
    const int axis = r.axes[i];
    const Dim& extent = c.source.dims[axis];
    // The inferred extent tells whether the shape function made the assumption.
    AxisRange range = axis_range(axis, extent, r.starts[i], r.ends[i], r.steps[i], Trust::noted());
    if (range.count != c.out[0]->shape[axis])
      range = axis_range(axis, extent, r.starts[i], r.ends[i], r.steps[i], Trust::none());
    v.offset = v.offset + range.start * c.source.strides[axis];
    v.strides[axis] = c.source.strides[axis] * Dim(r.steps[i]);
    // An extent that neither gives was taken to be equal to another one, which every step checks.
    v.dims[axis] = c.out[0]->shape[axis];
  }
  c.result.assign(1, v);
  return true;
}

}  // namespace situ
