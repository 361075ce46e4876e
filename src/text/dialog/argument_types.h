// How the arguments of a tool are written where texts need no quotes, by its schema.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "text/dialog/schema_parts.h"
#include "text/dialog/tool.h"

namespace situ {

class ArgumentTypes {
 public:
  ArgumentTypes() = default;
  ArgumentTypes(std::span<const Tool> tools, std::string_view name);
  const ValueForm& of(const std::string& key) const;

 private:
  std::map<std::string, ValueForm> listed_;
  ValueForm others_;
};

}  // namespace situ
