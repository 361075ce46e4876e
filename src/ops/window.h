// What one output of a convolution or a pooling sees of its operand: kernel, strides, dilations and padding along one
// to three axes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace situ {

struct Window {
  int axes = 0;
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, begin{}, end{};
  std::vector<int64_t> kernel;

  // Outputs along axis `a` of `extent`; `up`: the last one may see less than a whole kernel (ceil_mode).
  Dim outputs(size_t a, const Dim& extent, bool up) const;
};

// The attributes of `node`, with what auto_pad says of the padding, for x [N, C, D..]. Extents of the axes must be
// known where it does. "": all is well, else what is not.
std::string window_of(const Node& node, const Shape& x, std::vector<int64_t> kernel, Window* window);

}  // namespace situ
