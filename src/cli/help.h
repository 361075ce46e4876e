// What `situ`, `situ help COMMAND`, --help and --help-all print.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace situ::cli {

// Of `situ` alone: the commands that a newcomer needs, an example each.
std::string first_help();
// Of `situ --help`: all commands.
std::string commands_help(const CLI::App& app);
// Of a command, 40 lines at most; `all`: with the options of groups that options.h calls more().
std::string command_help(const CLI::App& command, bool all);
// "situ run MODEL [PROMPT]"
std::string usage_of(const CLI::App& command);

// What is wrong with the arguments that no option and no position has taken: an option that there is not names the
// nearest one. "": there are none.
std::string unknown_argument(const CLI::App& command);

}  // namespace situ::cli
