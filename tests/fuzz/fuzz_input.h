// What the fuzz targets share.
//
// A target is one file here: a function LLVMFuzzerTestOneInput that gives an input to one reader of the library. What
// the reader must keep to is checked with GoogleTest's macros. In a fuzzer a check that fails ends it (fuzz_main.cc);
// in the test that replays the corpus it fails the test (replay.cc).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/test_models.h"

namespace situ::fuzz {

// Whether it was an error. An error is one line.
inline bool refused(const Status& status) {
  if (status.is_ok()) return false;
  EXPECT_NE(status.message(), "");
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  return true;
}

// For readers that give every error its code: what has none was not foreseen.
inline bool refused_with_code(const Status& status) {
  EXPECT_NE(status.code(), Code::kInternal) << status.message();
  return refused(status);
}

// For code of Situ's own that answers a panic of it with an error.
inline bool refused_without_panic(const Status& status) {
  EXPECT_EQ(status.message().find("internal failure"), std::string::npos) << status.message();
  return refused(status);
}

// The input cut at its first `count - 1` NUL bytes; parts that are not there are empty.
inline std::vector<std::string> parts(const uint8_t* data, size_t size, size_t count) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> found;
  while (found.size() + 1 < count) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    found.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  found.emplace_back(rest);
  return found;
}

// A folder of this process, for readers that want a path.
inline const testing::TempFolder& folder() {
  static const testing::TempFolder folder;
  return folder;
}

// The path of a file there, with the input in it.
inline std::filesystem::path written(const char* name, const uint8_t* data, size_t size) {
  folder().write(name, std::string(reinterpret_cast<const char*>(data), size));
  return folder().path() / name;
}

}  // namespace situ::fuzz
