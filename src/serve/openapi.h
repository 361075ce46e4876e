// The interface as a document of OpenAPI 3.1.
#pragma once

#include "serve/json_body.h"

namespace situ::serve {

Json openapi();

}  // namespace situ::serve
