// The part of a grammar for the body of one call: CallForm.
#pragma once

#include <string>

#include "base/status.h"
#include "text/dialog/form.h"
#include "text/dialog/lark.h"
#include "text/dialog/tool.h"

namespace situ {

// Of kChannels: from the header of the message to the end of the arguments. Errors: what the form cannot write.
Result<std::string> call_body(Lark& lark, const CallForm& form, const Tool& tool);

// Arguments are one text of JSON, of which the whole schema is the grammar.
bool writes_json(const CallForm& form);

// Of kObject: the schema of the object that is a call.
std::string object_call_schema(const CallForm& form, const Tool& tool);

}  // namespace situ
