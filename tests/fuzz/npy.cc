// An array in a .npy file.
#include "base/npy.h"

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const Result<Tensor> tensor = read_npy(fuzz::written("x.npy", data, size));
  if (fuzz::refused(tensor.status())) return 0;
  EXPECT_LE(static_cast<size_t>(tensor->bytes()), size);
  EXPECT_EQ(tensor->view().count(), tensor->count());
  return 0;
}
