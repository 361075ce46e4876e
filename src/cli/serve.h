// `situ serve`: its options, from the command line and a file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "serve/limits.h"

namespace situ::cli {

struct ServeArguments : LoadArguments {
  std::vector<std::string> models, aliases, allowed_hosts, cors;
  std::optional<std::string> check;  // a URL
  std::string host, unix_path, api_key_file, media_path, config, log = "text";
  std::optional<int> port;
  std::optional<int64_t> media_memory;
  int64_t max_running = 64, queue = 1000;
  int drain = 30;
  bool insecure = false, strict = false, share_prefixes = false;
  PrefixReuse reuse = PrefixReuse::kPrompts;
  CLI::App* command = nullptr;  // the parser of these options, which reads those of the file too
  // Of the file alone.
  serve::Limits limits;
  struct Named : LoadArguments {
    std::string name;
  };
  std::vector<Named> named;
};
void add_serve_options(CLI::App& command, ServeArguments& arguments);
// What the file of --config (TOML) says and the command line does not. After parsing. Error: names the file, the line,
// and the key.
Status read_config(CLI::App& command, ServeArguments& arguments);
// Names of models become folders. kDone, or an exit code behind an error that is printed.
int find_served(ServeArguments& arguments);
int serve(ServeArguments& arguments);

}  // namespace situ::cli
