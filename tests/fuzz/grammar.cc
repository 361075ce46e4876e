// A grammar in Lark's syntax, and the same text as a regular expression.
#include "grammar_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  const std::string source = fuzz::parts(data, size, 1)[0];
  for (const GrammarKind kind : {GrammarKind::kLark, GrammarKind::kRegex}) (void)fuzz::answer(kind, source);
  return 0;
}
