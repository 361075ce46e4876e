// The body of a call of Messages, and of the call that counts its tokens.
#include "bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"})
    situ::fuzz::read_and_render(situ::serve::protocol_of(path), data, size);
  return 0;
}
