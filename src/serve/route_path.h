// Paths as clients write them, and those that there are.
#pragma once

#include <string>
#include <string_view>

namespace situ::serve {

// Without a second slash in a row, and without one at the end: "//v1/models/" -> "/v1/models".
std::string plain_path(std::string_view path);

// "POST /v1/chat/completions": of all routes, the one whose path a mistaken path is likest to. Paths that share more of
// their parts are nearer, then those that lack few characters.
std::string nearest_route(std::string_view path);

}  // namespace situ::serve
