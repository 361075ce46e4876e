// Which arguments of a tool are texts, by its schema.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "dialog/tool.h"

namespace situ {

enum class ArgumentType {
  kText,   // nothing but a text
  kOther,  // no text
  kAny,    // a text, or something else; or the schema does not say
};

class ArgumentTypes {
 public:
  ArgumentTypes() = default;
  ArgumentTypes(std::span<const Tool> tools, std::string_view name);
  ArgumentType of(const std::string& key) const;

 private:
  std::map<std::string, ArgumentType> types_;
};

}  // namespace situ
