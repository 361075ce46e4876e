// A JSON schema. What it allows is JSON.
#include "grammar_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const std::optional<std::string> answer = fuzz::answer(GrammarKind::kJsonSchema, fuzz::parts(data, size, 1)[0]);
  if (answer) {
    EXPECT_TRUE(nlohmann::json::accept(*answer)) << *answer;
  }
  return 0;
}
