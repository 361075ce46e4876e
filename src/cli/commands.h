// The subcommands of `situ`. Each returns the exit code: 0 success, 2 bad input (one line on stderr).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "situ/model.h"

namespace CLI {
class App;
}

namespace situ::cli {

// Which model, and how to load it.
struct LoadArguments {
  std::string model, kv_type = "auto", draft;
  std::optional<std::string> memory;
  bool naive = false, no_pack_cache = false;
  int threads = 0;
  int64_t context = 0, chunk = 512, window = 0, sink = 0;
};
// Error: names the argument.
Status load_options(const LoadArguments& arguments, LoadOptions* options);

struct RunArguments : LoadArguments {
  std::string prompt_ids, trace;
  std::optional<std::string> prompt, system;
  GenerateOptions generate;
  std::vector<std::string> logit_bias;  // ID=BIAS
  std::string schema_file, grammar_file;
  bool json = false, chat = false;
};
int run(RunArguments arguments);
// A conversation: the same options, but for prompts.
int chat(RunArguments arguments);
// The same, and room for what is to be generated.
Status load_options(const RunArguments& arguments, LoadOptions* options);
// Adds the options of `arguments.generate`, and logit_bias, but for those of the second.
void add_generate_options(CLI::App& command, RunArguments& arguments);
// What `run` reports beside the answer, which a conversation does not.
void add_report_options(CLI::App& command, GenerateOptions& options);
// Bytes of a --memory such as "2GiB", "512MiB", "1000000"; 0 without one. Error: it is no size.
Result<int64_t> parse_memory(const std::optional<std::string>& text);
// What the other arguments say of `arguments.generate`: biases, grammars in files. Error: names the text or the file.
Status resolve_arguments(RunArguments& arguments);
// The whole file. Error: it cannot be read.
Result<std::string> read_file(const std::string& path);

struct PerplexityArguments : LoadArguments {
  std::string file;
  int64_t stride = 0;
  bool json = false;
};
int perplexity(const PerplexityArguments& arguments);

struct InspectArguments {
  std::string model;
  bool json = false, no_pack_cache = false;
  std::string kv_type = "auto";
  std::optional<std::string> memory;  // budget for weights, arena and state, e.g. "2GiB"
};
int inspect(const InspectArguments& arguments);

struct BenchArguments {
  std::string model, versus;
  int64_t prompt = 35, tokens = 32;
  std::string depths = "0", kv_type = "auto";
  std::optional<std::string> streams;
  int reps = 3, threads = 0;
  bool json = false, no_pack_cache = false;
};
int bench(const BenchArguments& arguments);

// Prints "situ: message" to stderr and returns 2.
int fail(const std::string& message);
// What a file or an argument says, for a terminal: control characters are spelled out.
std::string one_line(const std::string& words);

}  // namespace situ::cli
