// Which Situ this is, and how it was built.
#pragma once

#include <string>
#include <vector>

namespace situ {

// MAJOR.MINOR.PATCH of the library that is linked, as the CMake package has it.
const char* version();

struct BuildFacts {
  std::string compiler;               // "GCC 12.2.0"
  std::string isa;                    // instruction set whose kernels this process runs; SITU_ISA chooses another
  std::vector<std::string> isas;      // all that this CPU can run, the plainest first
  std::vector<std::string> features;  // parts and kinds of libraries that the build has, and its sanitizer
};
BuildFacts build_facts();

}  // namespace situ
