// `situ pull`: the files of a model, by its name.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/options.h"

namespace situ::cli {

void add_pull_options(CLI::App& command, PullArguments& a) {
  command.add_option("name", a.model, "ORG/REPO[@REV][:VARIANT], or a short name")->required();
  repeated(command.add_option("--file", a.files,
                              "Fetch the files that the pattern matches, and no others (may be repeated)"),
           "GLOB");
  repeated(command.add_option("--variant", a.variants, "Precision of the graphs: q4, fp16, ...; or GRAPH=VARIANT"),
           "VARIANT");
  add_offline_option(command, "Options");
}

int pull(const PullArguments& a) {
  PullOptions options = shown_pull(true);
  options.variants = a.variants;
  options.files = a.files;
  const Result<Pulled> pulled = situ::pull(a.model, options);
  if (!pulled.is_ok()) return fail_pull(pulled.status(), a.model, "pull");
  std::printf("%s\n", pulled->path.c_str());
  return kDone;
}

}  // namespace situ::cli
