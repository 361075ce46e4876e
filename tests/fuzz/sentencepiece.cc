// A SentencePiece model.
#include "fuzz_input.h"
#include "text/piece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const Result<PieceModel> model = PieceModel::load(fuzz::written("x.model", data, size));
  if (fuzz::refused(model.status())) return 0;
  for (const char* text :
       {"the cat sat,  on a\tmat", "\xC3\xA9\xE2\x96\x81\xF0\x9F\x98\x80 <s> aaaaaaaaaaaaaaaa", ""}) {
    const Result<std::vector<std::string>> pieces = model->encode(text);
    if (!fuzz::refused(pieces.status())) (void)fuzz::refused(model->decode(*pieces).status());
  }
  std::vector<std::string> all;
  for (int64_t i = 0; i < std::min<int64_t>(model->size(), 100); ++i) all.push_back(model->piece(i));
  (void)fuzz::refused(model->decode(all).status());
  return 0;
}
