#include "passes/context/pass_context.h"

#include <cstdlib>
#include <sstream>

namespace situ {

bool pass_disabled(const std::string& name) {
  const char* list = std::getenv("SITU_DISABLE_PASSES");
  if (!list) return false;
  std::stringstream names(list);
  for (std::string n; std::getline(names, n, ',');)
    if (n == name || n == "all") return true;
  return false;
}

}  // namespace situ
