// The part of a grammar for the body of one call: CallForm.
#pragma once

#include <string>

#include "dialog/form.h"
#include "dialog/lark.h"
#include "dialog/tool.h"

namespace situ {

// Of kChannels: from the header of the message to the end of the arguments.
std::string call_body(Lark& lark, const CallForm& form, const Tool& tool);

// Of kObject: the schema of the object that is a call.
std::string object_call_schema(const CallForm& form, const Tool& tool);

}  // namespace situ
