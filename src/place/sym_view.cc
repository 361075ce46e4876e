#include "place/plan.h"

namespace situ {

// Walks both shapes from the outside, closing a group whenever the products agree. Inside a group the
// source must be contiguous; axes of extent 1 belong to no group.
bool reshape_view(const SymView& source, const Shape& dims, SymView* result) {
  result->offset = source.offset;
  result->dims = dims;
  result->strides.assign(dims.size(), Dim(0));
  std::vector<size_t> from, to;
  for (size_t i = 0; i < source.dims.size(); ++i)
    if (source.dims[i] != Dim(1)) from.push_back(i);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != Dim(1)) to.push_back(i);
  size_t f = 0, t = 0;
  while (f < from.size() && t < to.size()) {
    const size_t f0 = f, t0 = t;
    Dim have = source.dims[from[f++]], want = dims[to[t++]];
    while (have != want) {
      if (f < from.size() && dim_exact_div(want, have)) have = have * source.dims[from[f++]];
      else if (t < to.size() && dim_exact_div(have, want)) want = want * dims[to[t++]];
      else return false;
    }
    for (size_t i = f0; i + 1 < f; ++i)
      if (source.strides[from[i]] != source.strides[from[i + 1]] * source.dims[from[i + 1]]) return false;
    Dim stride = source.strides[from[f - 1]];
    for (size_t i = t; i-- > t0;) {
      result->strides[to[i]] = stride;
      stride = stride * dims[to[i]];
    }
  }
  return f == from.size() && t == to.size();
}

}  // namespace situ
