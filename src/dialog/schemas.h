// Schemas of tools, as grammars and readers need them.
#pragma once

#include <nlohmann/json.hpp>

#include "dialog/argument_types.h"
#include "dialog/tool.h"

namespace situ {

// {"type": "object"} where the tool has none, without words that allow nothing more or less (descriptions, titles).
nlohmann::ordered_json schema_of(const Tool& tool);

// What a part of a schema allows; `root`: where references look.
ArgumentType type_of(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);
// The part that references lead to, as far as they stay in the schema; else the same part.
const nlohmann::ordered_json& followed(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace situ
