// A kernel on rows that lie in memory, by the calling thread.
#pragma once

#include <span>

#include "kernels/kernel.h"
#include "kernels/params.h"

namespace situ {

inline void call_kernel(KernelFn kernel, const View& x, std::span<const View> to, const void* params) {
  KernelCall call;
  call.in = &x;
  call.in_count = 1;
  call.out = to.data();
  call.out_count = static_cast<int>(to.size());
  call.params = params;
  kernel(call, 0, 1);
}

}  // namespace situ
