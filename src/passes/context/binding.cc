#include "passes/context/binding.h"

#include <cmath>

namespace situ {

const char* state_rule_name(StateRule rule) {
  switch (rule) {
    case StateRule::kAppend:
      return "append";
    case StateRule::kReplace:
      return "replace";
    case StateRule::kPassThrough:
      return "pass-through";
    case StateRule::kSource:
      return "source";
  }
  return "";
}

void RotaryRows::write(int64_t position, float* row) const {
  for (size_t c = 0; c < angles.size(); ++c) {
    const double angle = static_cast<double>(position) * angles[c];
    row[c] = static_cast<float>(scales[c] * (sine ? std::sin(angle) : std::cos(angle)));
  }
}

}  // namespace situ
