// The tools that an answer may call, and whether it must.
#pragma once

#include <string>

namespace situ {

struct Tool {
  std::string name, description;
  std::string parameters_json = {};  // the JSON schema of its arguments, an object; "": it has none
};

struct ToolChoice {
  // kAuto: texts, or calls. kRequired: one call at least. kNamed: one call of `name`. kNone: tools are not shown.
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name = {};  // of kNamed
  bool parallel = true;   // several calls in one answer
};

}  // namespace situ
