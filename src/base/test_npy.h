// .npy files made in memory, for tests.
#pragma once

#include <string>

namespace situ::test_npy {

inline const std::string kFloats(
    "\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\x00\x00\x00\x00\x00\x00\x20\x41\x00\x00\xc8\x42",
    24);  // 1, -2, 0.5, 0, 10, 100

// A file of this header and data.
inline std::string npy(const std::string& header, const std::string& data, int major = 1, int minor = 0) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += static_cast<char>(minor);
  const size_t length = header.size() + 1;
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) file += static_cast<char>(length >> (8 * i) & 255);
  return file + header + "\n" + data;
}

// `descr` and `shape` as Python writes them: "'<f4'", "(2, 3)".
inline std::string header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }   ";
}

}  // namespace situ::test_npy
