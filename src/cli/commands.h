// The subcommands of `situ`. Each returns an ExitCode (common.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "situ/model.h"
#include "situ/speech.h"

namespace CLI {
class App;
}

namespace situ::cli {

// Which model, and how to load it.
struct LoadArguments {
  std::string model, kv_type = "auto", draft;
  std::vector<std::string> variants;
  std::optional<std::string> memory;
  bool naive = false, no_pack_cache = false;
  int threads = 0;
  int64_t context = 0, chunk = 512, window = 0, sink = 0, slots = 0;
};
// Error: names the argument.
Status load_options(const LoadArguments& arguments, LoadOptions* options);
// Their options, but for the model and --draft.
void add_load_options(CLI::App& command, LoadArguments& arguments);

struct RunArguments : LoadArguments {
  std::string trace;
  std::optional<std::string> prompt, prompt_ids, system;
  GenerateOptions generate;
  std::vector<std::string> logit_bias;  // ID=BIAS
  std::string schema_file, grammar_file;
  std::optional<std::string> early_stopping;
  // Of encoder-decoders: ids of the decoder, NAME=FILE.npy for inputs, languages of a tokenizer that has some.
  std::string decoder_prompt_ids;
  std::vector<std::string> encoder_inputs;
  std::optional<std::string> source_language, target_language;
  // Of models with a vision encoder: files, KEY=VALUE for the image processor, most pixels of a file.
  std::vector<std::string> images, processor;
  int64_t max_pixels = 64'000'000;
  std::vector<std::string> sounds;  // files of models with an audio encoder
  bool json = false, chat = false;
};
int run(RunArguments arguments);
// A conversation: the same options, but for prompts.
int chat(RunArguments arguments);
// Why the text of --seed is no seed, or "": the parser itself would take -1 and numbers of more than 64 bits for
// others.
std::string whole_seed(const std::string& text);
// Adds the options of `arguments.generate`, and logit_bias, but for those of the second.
void add_generate_options(CLI::App& command, RunArguments& arguments);
// What `run` reports beside the answer, which a conversation does not.
void add_report_options(CLI::App& command, GenerateOptions& options);
// What the other arguments say of `arguments.generate`: biases, grammars in files. Error: names the text or the file; a
// text that is not UTF-8.
Status resolve_arguments(RunArguments& arguments);

struct TranscribeArguments : LoadArguments {
  std::vector<std::string> audio;
  SpeechOptions speech;
  std::vector<std::string> encoder_inputs;  // NAME=FILE.npy, in place of recordings
  std::string temperatures = "0,0.2,0.4,0.6,0.8,1", format = "text", out_folder;
  bool json = false, quiet = false;
};
int transcribe(TranscribeArguments arguments);
// The options of `transcribe`, all but those of loading.
void add_transcribe_options(CLI::App& command, TranscribeArguments& arguments);

struct EmbedArguments : LoadArguments {
  std::vector<std::string> texts;
  std::string file;  // with one text a line, in place of them
  std::optional<std::string> pair, prompt, prompt_name;
  std::optional<int64_t> dimensions;
  int reps = 0;  // 0: once, untimed
  bool json = false;
};
int embed(const EmbedArguments& arguments);
void add_embed_options(CLI::App& command, EmbedArguments& arguments);

struct PerplexityArguments : LoadArguments {
  std::string file;
  int64_t stride = 0;
  bool json = false;
};
int perplexity(const PerplexityArguments& arguments);

struct BatchArguments : LoadArguments {
  std::string input, output = "-", stats;  // "-": standard input or output
  bool resume = false;
  bool strict = false;  // names that no body knows are refused
  int64_t max_running = 64;
  PrefixReuse reuse = PrefixReuse::kPrompts;
};
int batch(const BatchArguments& arguments);

struct InspectArguments {
  std::string model;
  std::vector<std::string> variants;
  bool json = false, no_pack_cache = false;
  std::string kv_type = "auto";
  std::optional<std::string> html;    // the file that a page with the picture of the placement is written to
  std::optional<std::string> memory;  // budget for weights, arena and state, e.g. "2GiB"
};
int inspect(const InspectArguments& arguments);

struct CheckArguments {
  std::string model;
  std::vector<std::string> variants;
  int64_t context = 0;
  std::optional<std::string> verify;  // prompts, as they are written; "": the usual number
  bool json = false;
};
int check(CheckArguments arguments);
void add_check_options(CLI::App& command, CheckArguments& arguments);

struct PullArguments {
  std::string model;
  std::vector<std::string> variants, files;  // files: patterns
};
int pull(const PullArguments& arguments);
void add_pull_options(CLI::App& command, PullArguments& arguments);

struct ListArguments {
  bool json = false, names = false;
};
int list(const ListArguments& arguments);
void add_list_options(CLI::App& command, ListArguments& arguments);

struct RemoveArguments {
  std::string name;
  bool force = false;
};
int remove(const RemoveArguments& arguments);
void add_rm_options(CLI::App& command, RemoveArguments& arguments);

struct PruneArguments {
  std::optional<std::string> to;  // bytes, such as "20GB"
  bool force = false;
};
int prune(const PruneArguments& arguments);
void add_prune_options(CLI::App& command, PruneArguments& arguments);

struct BenchArguments {
  std::string model, versus;
  std::vector<std::string> variants;
  int64_t prompt = 35, tokens = 32;
  std::string depths = "0", kv_type = "auto";
  std::optional<std::string> streams;
  int reps = 3, threads = 0;
  int64_t slots = 0;
  // Of --streams:
  std::optional<int64_t> requests;
  std::optional<double> rate, temperature, top_p;
  std::optional<std::string> prompts, answers;  // "A-B"
  bool sample = false;
  PrefixReuse reuse = PrefixReuse::kOff;
  bool json = false, no_pack_cache = false;
};
int bench(const BenchArguments& arguments);

}  // namespace situ::cli
