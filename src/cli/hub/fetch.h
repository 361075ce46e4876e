// One file of a repository, into the cache.
#pragma once

#include <functional>
#include <string>

#include "cli/hub/listing.h"

namespace situ::hub {

struct Fetching {
  const HubClient& client;
  const ModelName& name;
  const RepositoryCache& cache;
  std::string commit;
  std::function<bool(int64_t bytes)> progress;  // so many more are there; negative: they were no good. False: stop
};

// Fetches the blob, unless it is there, and links the snapshot's path to it. A part that an earlier call left goes on
// by Range. Two processes at once fetch once. Errors: network, disk; twice other bytes than the digest says.
Status fetch_file(const Fetching& to, const std::string& path, const HubFile& file);

}  // namespace situ::hub
