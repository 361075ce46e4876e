// The body of a call of chat: what it asks for, the prompt, the grammar.
#include "bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  situ::fuzz::read_and_render(situ::serve::protocol_of("/v1/chat/completions"), data, size);
  return 0;
}
