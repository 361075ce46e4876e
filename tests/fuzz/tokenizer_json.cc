// tokenizer.json, and behind a NUL byte a text to encode.
#include "fuzz_input.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const std::vector<std::string> input = fuzz::parts(data, size, 2);
  const std::string text = input[1].empty() ? "Hello  <s>\xC3\xA9\xE2\x96\x81 wo\nrld 12" : input[1];
  fuzz::folder().write("tokenizer.json", input[0]);
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(fuzz::folder().path());
  if (fuzz::refused(tokenizer.status())) return 0;
  for (const bool special : {false, true}) {
    const Result<std::vector<int64_t>> ids = tokenizer->encode(text, special);
    if (fuzz::refused(ids.status())) continue;
    (void)fuzz::refused(tokenizer->decode(*ids, special).status());
    for (const int64_t id : *ids) EXPECT_GE(id, 0);
  }
  std::vector<int64_t> first;
  for (int64_t id = 0; id < std::min<int64_t>(tokenizer->vocab_size(), 300); ++id) first.push_back(id);
  (void)fuzz::refused(tokenizer->decode(first, false).status());
  return 0;
}
