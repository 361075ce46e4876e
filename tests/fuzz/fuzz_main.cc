// libFuzzer has the main function. A check of GoogleTest that fails must end the fuzzer: it is thrown, and nobody
// catches it.
#include <gtest/gtest.h>

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  GTEST_FLAG_SET(throw_on_failure, true);
  return 0;
}
