#include "onnx/name_scope.h"

namespace situ::onnx {

std::string UniqueNames::take(std::string_view base) {
  const auto [it, fresh] = used_.try_emplace(std::string(base), 1);
  if (fresh) return it->first;
  int64_t& number = it->second;  // stays where it is when the map grows
  while (true) {
    std::string candidate = std::string(base) + "_" + std::to_string(++number);
    if (used_.try_emplace(candidate, 1).second) return candidate;
  }
}

std::optional<ValueId> NameScope::find_own(std::string_view name) const {
  const auto it = names_.find(name);
  if (it == names_.end()) return std::nullopt;
  return it->second;
}

std::optional<ValueId> NameScope::resolve(std::string_view name) {
  if (auto own = find_own(name)) return own;
  if (!outer_) return std::nullopt;
  const std::optional<ValueId> outside = outer_->resolve(name);
  if (!outside || *outside == kNoValue) return outside;  // kNoValue: an operand that a function's caller left out
  const ValueId inside = target_.graph.add_value(target_.value_names.take(name));
  target_.graph.captures.emplace_back(inside, *outside);
  names_.emplace(name, inside);
  return inside;
}

}  // namespace situ::onnx
