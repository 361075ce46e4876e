// Gives every input of the kept corpus to its target: what fuzzers found once stays mended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// Each target's LLVMFuzzerTestOneInput has a name of its own here. The list is written by CMakeLists.txt.
#define SITU_FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t*, size_t);
#include "fuzz_targets.inc"
#undef SITU_FUZZ_TARGET

namespace {

struct Target {
  const char* name;
  int (*run)(const uint8_t*, size_t);
};
#define SITU_FUZZ_TARGET(name) {#name, &fuzz_##name},
const Target kTargets[] = {
#include "fuzz_targets.inc"
};

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, Corpus) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(SITU_FUZZ_CORPUS) / GetParam().name))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  for (const fs::path& path : files) {
    std::printf("%s\n", path.c_str());  // after a crash the last line names the input
    std::fflush(stdout);
    SCOPED_TRACE(path.string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    // The bytes alone, so that AddressSanitizer sees a read behind them.
    std::vector<uint8_t> input(bytes.begin(), bytes.end());
    GetParam().run(input.data(), input.size());
  }
}

INSTANTIATE_TEST_SUITE_P(, Replay, testing::ValuesIn(kTargets), [](const auto& info) { return info.param.name; });

}  // namespace
