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
  std::string model;
  LoadOptions load;
};
// MODEL, or many.
void add_model(CLI::App& command, LoadArguments& arguments, const char* help = "Folder, .onnx file or name of a model");
// Options of load_option_table() and --offline. `draft`: the command generates text.
void add_load_options(CLI::App& command, LoadArguments& arguments, bool draft = false);

struct RunArguments : LoadArguments {
  std::string trace;
  std::optional<std::string> prompt, prompt_ids, system;
  // The message of a user, or a prompt where there is no chat template: the argument, a file, standard input.
  std::optional<std::string> words, file;
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
  std::vector<std::string> sounds;   // files of models with an audio encoder
  std::optional<std::string> tools;  // a file, and then what it has
  bool json = false, chat = false, raw = false;
};
void add_run_options(CLI::App& command, RunArguments& arguments);
void add_chat_options(CLI::App& command, RunArguments& arguments);
int run(RunArguments arguments);
// A conversation: the same options, but for prompts.
int chat(RunArguments arguments);
// Why the text of --seed is no seed, or "": the parser itself would take -1 and numbers of more than 64 bits for
// others.
std::string whole_seed(const std::string& text);
// Adds the options of `arguments.generate`, and logit_bias.
void add_generate_options(CLI::App& command, RunArguments& arguments);
// --draft-tokens, beside --draft.
void add_draft_tokens(CLI::App& command, RunArguments& arguments);
void add_prefix_cache_option(CLI::App& command, PrefixReuse& reuse, const std::string& group);
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
int embed(EmbedArguments arguments);
void add_embed_options(CLI::App& command, EmbedArguments& arguments);

struct PerplexityArguments : LoadArguments {
  std::string file;
  int64_t stride = 0;
  bool json = false;
};
int perplexity(PerplexityArguments arguments);
void add_perplexity_options(CLI::App& command, PerplexityArguments& arguments);

struct BatchArguments : LoadArguments {
  std::string input, output = "-", stats;  // "-": standard input or output
  bool resume = false;
  bool strict = false;  // names that no body knows are refused
  int64_t max_running = 64;
  PrefixReuse reuse = PrefixReuse::kPrompts;
};
int batch(BatchArguments arguments);
void add_batch_options(CLI::App& command, BatchArguments& arguments);

struct InspectArguments : LoadArguments {
  bool json = false;
  bool passes = false;
  std::optional<std::string> html;  // the file that a page with the picture of the placement is written to
};
int inspect(InspectArguments arguments);
void add_inspect_options(CLI::App& command, InspectArguments& arguments);

struct CheckArguments : LoadArguments {
  std::optional<std::string> verify;  // prompts, as they are written; "": the usual number
  std::string json;                   // "": text; "facts" or "full"
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
  std::optional<int64_t> to;  // bytes
  bool force = false;
};
int prune(const PruneArguments& arguments);
void add_prune_options(CLI::App& command, PruneArguments& arguments);

struct BenchArguments : LoadArguments {
  std::string versus;
  int64_t prompt = 35, tokens = 32;
  std::string depths = "0";
  std::optional<std::string> streams;
  int reps = 3;
  // Of --streams:
  std::optional<int64_t> requests;
  std::optional<double> rate, temperature, top_p;
  std::optional<std::string> prompts, answers;  // "A-B"
  bool sample = false;
  PrefixReuse reuse = PrefixReuse::kOff;
  bool json = false;
};
int bench(BenchArguments arguments);
void add_bench_options(CLI::App& command, BenchArguments& arguments);

}  // namespace situ::cli
