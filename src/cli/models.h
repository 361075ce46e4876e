// Models by name: what a command is given in place of a path.
#pragma once

#include <string>
#include <vector>

#include "situ/load_options.h"
#include "situ/tools.h"

namespace CLI {
class App;
}

namespace situ::cli {

// --offline: of every command that takes a model.
void add_offline_option(CLI::App& command);

// A name becomes the path of its files, which are fetched if they are not there, and load.variants what its graphs
// need; so does load.draft. A path, and what is neither, stay. Returns kDone, or an exit code behind an error that is
// printed. `command`: of the lines that say what else may be meant.
int find_model(std::string& model, LoadOptions& load, const char* command);

// Prints why a name has no model, and returns kFailed or kRefused.
int fail_pull(const Status& status, const char* command);

// Options that say on standard error what is fetched, and how far it is.
PullOptions shown_pull(bool ask);

}  // namespace situ::cli
