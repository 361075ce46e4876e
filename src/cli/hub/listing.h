// What a hub says of a repository: its commit, and the files of that.
#pragma once

#include <string>

#include "cli/hub/cache.h"
#include "cli/hub/client.h"
#include "cli/hub/name.h"

namespace situ::hub {

// The commit that a revision is now. Errors: there is no such repository or revision, or it is not for this token.
Result<std::string> ask_commit(const HubClient& client, const ModelName& name);
// All files, of all pages. Errors: a path, a digest or a size that cannot be.
Result<HubFiles> ask_files(const HubClient& client, const ModelName& name, const std::string& commit);
// The digest of a file as its own address says it, which is the listing's. Errors: it is another one, or none.
Status check_digest(const HubClient& client, const ModelName& name, const std::string& commit, const std::string& path,
                    const HubFile& file);
// "ENDPOINT/ORG/REPO/resolve/COMMIT/PATH".
std::string file_url(const HubClient& client, const ModelName& name, const std::string& commit,
                     const std::string& path);
// What a status other than 200 means; ok for 200 and 206. `path`: "" or a file's.
Status check_status(const HubClient& client, const ModelName& name, const HubAnswer& answer, const std::string& path);

}  // namespace situ::hub
