// Declares the functions that ops.inc names. An operator without a prepare or a view says no_prepare,
// no_view there.
#pragma once

#include "ops/op.h"

namespace situ {

#define SITU_OP(domain, name, since, placement, infer, prepare, view) \
  Status infer(InferContext&);                                        \
  Status prepare(const PrepareContext&, Prepared*);                   \
  bool view(ViewContext&);
#include "ops/ops.inc"
#undef SITU_OP

}  // namespace situ
