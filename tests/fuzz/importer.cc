// An .onnx file. Beside it stands data.bin, of 64 bytes, for tensors whose bytes are in a file of their own.
#include "fuzz_input.h"
#include "imported.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  static const bool beside = (fuzz::folder().write("data.bin", std::string(64, 'x')), true);
  const Result<ImportedModel> model = import_onnx(fuzz::written("model.onnx", data, size));
  if (beside && !fuzz::refused_with_code(model.status())) fuzz::expect_sound(*model);
  return 0;
}
