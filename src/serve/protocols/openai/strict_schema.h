// JSON schemas under `strict: true`, as clients of OpenAI's structured output mean them.
#pragma once

#include <optional>

#include "serve/json_body.h"

namespace situ::serve {

// {"type": "object", "properties": P} -> the same with "additionalProperties": false, at each depth: an answer has no
// keys that the schema does not name. The members of `allOf` are merged into the schema that has them first, and a
// schema beside `anyOf` or `oneOf` into each of the alternatives, so that one part does not forbid what another one
// names. Objects that say themselves what else they may have (additionalProperties, patternProperties) stay as they
// are, and so does what cannot be merged. None: merging it would take more than 100,000 parts.
std::optional<Json> strict_schema(const Json& schema);

}  // namespace situ::serve
