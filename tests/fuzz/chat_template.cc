// A chat template; behind NUL bytes the messages and the variables that it is given, as JSON.
#include "fuzz_input.h"
#include "text/owned_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const std::vector<std::string> input = fuzz::parts(data, size, 3);
  const std::string messages =
      input[1].empty() ? R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"text": "Yes"}]}])"
                       : input[1];
  const std::string variables = input[2].empty() ? R"({"tools": [{"name": "f"}], "bos_token": "<s>"})" : input[2];
  OwnedText out, error;
  if (situ_text_render_chat(input[0].data(), input[0].size(), messages.data(), messages.size(), variables.data(),
                            variables.size(), nullptr, out.get(), error.get()) != 0) {
    EXPECT_TRUE(fuzz::refused_without_panic(error.status()));
  }
  return 0;
}
