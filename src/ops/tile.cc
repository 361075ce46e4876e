// Tile: x repeated along each axis. Pad: elements added in front of and behind each axis, or cropped.
#include <cstdlib>
#include <string_view>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Longer than any axis, and short enough for sums of a few not to overflow.
constexpr int64_t kWidestPad = int64_t{1} << 48;

Status pad_mode(const Node& node, int32_t* mode) {
  const std::string name = node.attr_string("mode", "constant");
  const std::string_view names[] = {"constant", "reflect", "edge", "wrap"};
  for (int i = 0; i < 4; ++i) {
    if (name != names[i]) continue;
    *mode = i;
    return Status::ok();
  }
  return Status::error(node.label() + ": mode '" + name + "' is not known");
}

bool from_attributes(const Node& node) { return node.attr("pads") != nullptr || node.attr("paddings") != nullptr; }

std::vector<int64_t> attribute_pads(const Node& node) {
  return node.attr_ints(node.attr("pads") != nullptr ? "pads" : "paddings");
}

}  // namespace

// x [d..], repeats [r] -> [d * repeat ..].
Status infer_tile(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  std::vector<Dim> repeats;
  SITU_RETURN_IF_ERROR(need_content(c, 1, "repeats", &repeats));
  Shape shape = c.input(0).shape;
  if (repeats.size() != shape.size())
    return c.fail(std::to_string(repeats.size()) + " repeats for input " + shape_str(shape));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (repeats[i].lower_bound() < 0) return c.fail("repeat " + repeats[i].str() + " is negative");
    shape[i] = shape[i] * repeats[i];
  }
  return emit(c, 0, c.input(0).type, std::move(shape));
}

Status prepare_tile(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  out->kernel = &KernelTable::move_tile;
  return Status::ok();
}

// x [d..], pads [2 n] (n in front, n behind; n = rank, or the axes of operand 3) -> [d + front + behind ..].
Status infer_pad(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  int32_t mode = 0;
  SITU_RETURN_IF_ERROR(pad_mode(c.node, &mode));
  Shape shape = c.input(0).shape;
  std::vector<Dim> pads;
  if (from_attributes(c.node)) {
    for (int64_t p : attribute_pads(c.node)) pads.push_back(p);
  } else {
    SITU_RETURN_IF_ERROR(need_content(c, 1, "pads", &pads));
  }
  if (c.has(2) && c.input(2).ranked) SITU_RETURN_IF_ERROR(need_same_type(c, 0, 2));
  std::vector<int64_t> axes;
  if (c.has(3))
    SITU_RETURN_IF_ERROR(need_content_i64(c, 3, "axes", &axes));
  else
    for (size_t i = 0; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (pads.size() != 2 * axes.size())
    return c.fail(std::to_string(pads.size()) + " pads for " + std::to_string(axes.size()) + " axes");
  std::vector<bool> seen(shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    Result<int> axis = normalize_axis(axes[i], static_cast<int>(shape.size()));
    if (!axis.is_ok()) return axis.status().with_context(c.node.label());
    if (seen[*axis]) return c.fail("axis " + std::to_string(axes[i]) + " is given twice");
    seen[*axis] = true;
    for (const Dim& pad : {pads[i], pads[i + axes.size()]})
      if (pad.is_const() && std::abs(pad.value() / 2) > kWidestPad)
        return c.fail("pad " + pad.str() + " is out of range");
    const Dim extent = shape[*axis], added = pads[i] + pads[i + axes.size()];
    if (mode != 0 && extent == Dim(0) && added != Dim(0))
      return c.fail("cannot repeat elements of the empty axis " + std::to_string(axes[i]));
    shape[*axis] = extent + added;
  }
  return emit(c, 0, c.input(0).type, std::move(shape));
}

Status prepare_pad(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  PadParams p{};
  SITU_RETURN_IF_ERROR(pad_mode(c.node, &p.mode));
  p.from_attributes = from_attributes(c.node);
  if (p.from_attributes) {
    SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes | kBoolType));
    const std::vector<int64_t> pads = attribute_pads(c.node);
    for (size_t i = 0; i < pads.size() / 2 && i < static_cast<size_t>(kMaxRank); ++i) p.before[i] = pads[i];
    p.value = c.node.attr_float("value", 0);
  } else {
    SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  }
  return use_kernel(out, &KernelTable::move_pad, p);
}

}  // namespace situ
