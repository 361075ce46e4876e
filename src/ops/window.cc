#include "ops/window.h"

#include <algorithm>

#include "ops/infer.h"

namespace situ {
namespace {

std::string read_list(const Node& node, const char* name, size_t count, int64_t least, int64_t* to) {
  const std::vector<int64_t> list = node.attr_ints(name);
  if (list.empty()) return "";
  if (list.size() != count)
    return std::string(name) + " has " + std::to_string(list.size()) + " numbers, not " + std::to_string(count);
  for (size_t i = 0; i < count; ++i) {
    if (list[i] < least || list[i] > (int64_t{1} << 30)) return std::string(name) + " holds " + std::to_string(list[i]);
    to[i] = list[i];
  }
  return "";
}

}  // namespace

Dim Window::outputs(size_t a, const Dim& extent, bool up) const {
  const Dim room = extent + Dim(begin[a] + end[a] - dilations[a] * (kernel[a] - 1) - 1);
  const Dim count = dim_div(up ? room + Dim(strides[a] - 1) : room, Dim(strides[a])) + Dim(1);
  // One that would begin behind the operand sees nothing.
  if (up && extent.is_const() && count.is_const() && (count.value() - 1) * strides[a] >= extent.value() + begin[a])
    return count - Dim(1);
  return count;
}

std::string window_of(const Node& node, const Shape& x, std::vector<int64_t> kernel, Window* w) {
  w->axes = static_cast<int>(x.size()) - 2;
  const size_t axes = static_cast<size_t>(w->axes);
  w->kernel = std::move(kernel);
  for (const auto& [name, least, to] :
       {std::tuple{"strides", int64_t{1}, w->strides.data()}, {"dilations", int64_t{1}, w->dilations.data()}})
    if (std::string wrong = read_list(node, name, axes, least, to); !wrong.empty()) return wrong;
  const std::string pad = node.attr_string("auto_pad", "NOTSET");
  if (pad == "NOTSET") {
    int64_t pads[6] = {};
    if (std::string wrong = read_list(node, "pads", 2 * axes, 0, pads); !wrong.empty()) return wrong;
    for (size_t a = 0; a < axes; ++a) {
      w->begin[a] = pads[a];
      w->end[a] = pads[axes + a];
    }
  } else if (pad == "SAME_UPPER" || pad == "SAME_LOWER") {
    for (size_t a = 0; a < axes; ++a) {
      if (!x[2 + a].is_const())
        return "auto_pad is " + pad + " and the extents of x " + shape_str(x) + " are not known";
      const int64_t extent = x[2 + a].value(), out = (extent + w->strides[a] - 1) / w->strides[a],
                    seen = (w->kernel[a] - 1) * w->dilations[a] + 1,
                    all = std::max<int64_t>(0, (out - 1) * w->strides[a] + seen - extent);
      w->begin[a] = pad == "SAME_UPPER" ? all / 2 : all - all / 2;
      w->end[a] = all - w->begin[a];
    }
  } else if (pad != "VALID") {
    return "auto_pad is '" + pad + "'";
  }
  for (size_t a = 0; a < axes; ++a)
    if ((x[2 + a] + Dim(w->begin[a] + w->end[a] - w->dilations[a] * (w->kernel[a] - 1) - 1)).upper_bound() < 0)
      return "axis " + std::to_string(2 + a) + " of x " + shape_str(x) + " is shorter than the kernel";
  return "";
}

}  // namespace situ
