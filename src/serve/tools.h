// Tools of a body: functions that an answer may call.
#pragma once

#include <string>

#include "serve/body_reader.h"

namespace situ::serve {

// {"name", "description", `parameters`: a schema} to ask.tools. Sets the refusal.
void read_tool(BodyReader& reader, const std::string& where, const Json& tool, const char* parameters);
// What is asked of tools has to be among them. Sets the refusal.
void check_choice(BodyReader& reader);

}  // namespace situ::serve
