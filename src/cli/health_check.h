// `situ serve --check URL`, for service managers and containers.
#pragma once

#include <string>

namespace situ::cli {

// Asks URL/health/ready, for 5 s at most. URL: http://HOST[:PORT][/PREFIX], or unix:PATH, as `situ serve` prints them.
// kDone where the answer is 200, else kFailed behind a line on standard error.
int check_health(const std::string& url);

}  // namespace situ::cli
