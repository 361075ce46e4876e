// The part of a grammar for the body of one call whose arguments are no JSON: tags, Python, literals of a model's own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "text/dialog/form.h"
#include "text/dialog/lark.h"
#include "text/dialog/tool.h"

namespace situ {

// `schema`: schema_of(tool). Errors name the keyword or the property that the form cannot write.
Result<std::string> spelled_body(Lark& lark, const CallForm& form, const Tool& tool,
                                 const nlohmann::ordered_json& schema);

}  // namespace situ
