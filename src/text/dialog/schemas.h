// Schemas of tools, as grammars and readers need them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "text/dialog/tool.h"

namespace situ {

// {"type": "object"} where the tool has none, without words that allow nothing more or less (descriptions, titles).
nlohmann::ordered_json schema_of(const Tool& tool);

// Its references, of which "#" is the whole, as they read where it stands at `to` in another: "#/properties/x".
void move_references(nlohmann::ordered_json& schema, const std::string& to);

// "%json ...", a part of a Lark grammar: JSON that a part of the schema `root` allows.
std::string json_rule(const nlohmann::ordered_json& part, const nlohmann::ordered_json& root);

}  // namespace situ
