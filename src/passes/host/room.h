// Whether the tokens of a context have room: in tables that are read by position, and in states of a fixed size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "passes/context/pass_context.h"

namespace situ {

// Whether tables have a row for each position; before weights are packed, or behind limit_window.
Status check_positions(PassContext&);
// Whether states of a fixed size that are written at the tokens' positions have a place for each; before weights are
// packed.
Status check_caches(PassContext&);
// The error of both: a context of `length` tokens does not fit.
Status no_room(const PassContext& context, int64_t length, const std::string& why);
// The most tokens, up to `most`, of which `holds` is true, if it is true of all fewer ones too; 0: of none.
int64_t most_that(int64_t most, const std::function<bool(int64_t tokens)>& holds);

}  // namespace situ
