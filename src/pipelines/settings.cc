#include "pipelines/settings.h"

#include <cmath>
#include <sstream>

namespace situ {

std::string text_of(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
std::string text_of(int64_t value) { return std::to_string(value); }

std::string Range::instead_of(double value) const {
  const auto as_float = static_cast<float>(value);
  const bool lost = std::isfinite(value) && (!std::isfinite(as_float) || (value != 0 && as_float == 0));
  return std::string(words) + (in_float && lost ? " in float32" : "");
}

void Settings::check_id(const std::string& name, int64_t id) {
  if (id < 0 || id >= vocabulary)
    refuse(Status::wrong_option(
        name, name + ": token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary)));
}

std::vector<int64_t> Settings::ids(const char* field) {
  const ConfigField* found = configured(field);
  if (!found || found->text == "null") return {};
  if (!found->ids)
    refuse(Status::error(Code::kInvalidArgument,
                         found->where + " should be a token id or a list of them, is " + found->text));
  return found->ids.value_or(std::vector<int64_t>());
}

std::vector<int64_t> Settings::forced(const char* name, const std::optional<int64_t>& given, const char* field) {
  if (given && *given == -1) return {};
  if (given) {
    check_id(name, *given);
    return {*given};
  }
  const std::vector<int64_t> found = ids(field);
  if (!found.empty()) check_ids(configured(field)->where, found);
  return found;
}

}  // namespace situ
