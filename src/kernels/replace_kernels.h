// For tests: other kernels than the chosen ones, which count, wait, or fail.
#pragma once

#include "kernels/kernel.h"

namespace situ {

// `table` is what kernels() returns from now on; null: the chosen table again. No kernel may be running, and programs
// that were made before keep the kernels that they took.
void replace_kernels(const KernelTable* table);

}  // namespace situ
