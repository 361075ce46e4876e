#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/models.h"
#include "cli/repeated.h"
#include "cli/serve.h"

namespace {

void add_variant_option(CLI::App& command, std::vector<std::string>& variants) {
  situ::cli::repeated(
      command.add_option(
          "--variant", variants,
          "Precision of the graphs, where the folder has several: q4, fp16 ... for all, or GRAPH=VARIANT"),
      "VARIANT");
  situ::cli::add_offline_option(command);
}

void add_slots_option(CLI::App& command, int64_t& slots) {
  command.add_option("--slots", slots, "Tokens of state, exactly so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void add_prefix_cache_option(CLI::App& command, situ::PrefixReuse& reuse) {
  const std::map<std::string, situ::PrefixReuse> names{
      {"off", situ::PrefixReuse::kOff}, {"prompts", situ::PrefixReuse::kPrompts}, {"all", situ::PrefixReuse::kAll}};
  command.add_option("--prefix-cache", reuse, "What is used of the state of earlier prompts: off, prompts or all")
      ->transform(CLI::CheckedTransformer(names))
      ->option_text("off|prompts|all");
}

// What `run` and `chat` have in common.
void add_run_options(CLI::App& command, situ::cli::RunArguments& arguments) {
  command.add_option("--system", arguments.system, "System message; applies the chat template");
  add_generate_options(command, arguments);
  situ::cli::add_load_options(command, arguments);
  CLI::Option* draft = command.add_option(
      "--draft", arguments.draft,
      "A smaller model with the same tokens, which guesses what this one will say: the same text sooner");
  command.add_option("--draft-tokens", arguments.generate.draft_tokens, "At most so many tokens at once (4)")
      ->check(CLI::Range(int64_t{1}, int64_t{255}))
      ->needs(draft);
  draft->each([&](const std::string&) {
    if (arguments.generate.draft_tokens == 0) arguments.generate.draft_tokens = 4;
  });
}

}  // namespace

void situ::cli::add_load_options(CLI::App& command, LoadArguments& arguments) {
  command.add_option("--threads", arguments.threads, "Threads (default: one per usable CPU)")
      ->check(CLI::Range(1, int{situ::Runtime::kMostThreads}));
  command
      .add_option("--context", arguments.context,
                  "Tokens that the sequence may hold (default: the model's; 4096 where it says nothing)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command.add_option(
      "--memory", arguments.memory,
      "Budget for weights, arena and state, e.g. 2GiB (default: the state may grow to half of what is free)");
  add_slots_option(command, arguments.slots);
  command.add_option("--chunk", arguments.chunk, "Most prompt tokens in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  CLI::Option* window = command
                            .add_option("--window", arguments.window,
                                        "Tokens attend to the last so many only, and the sequence may go on for ever")
                            ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command.add_option("--sink", arguments.sink, "First tokens that are attended to beside the window")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->needs(window);
  command.add_option("--kv-type", arguments.kv_type, "Element type of attention states (default: auto)")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "q8"}));
  add_variant_option(command, arguments.variants);
  command.add_flag("--no-pack-cache", arguments.no_pack_cache, "Neither use nor save packed weights of other runs");
}

int run_command_line(int argc, char** argv) {
  using namespace situ::cli;
  CLI::App app{"Situ runs generative ONNX models in place: nothing is copied on the way from token to token."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "situ " SITU_VERSION);

  RunArguments run_arguments;
  CLI::App* run_command = app.add_subcommand("run", "Generate text: the most probable token each time, or sampled");
  run_command->add_option("model", run_arguments.model, "Model folder or .onnx file")->required();
  auto* prompt = run_command->add_option("--prompt", run_arguments.prompt, "Prompt text");
  auto* ids = run_command->add_option("--prompt-ids", run_arguments.prompt_ids, "Prompt as token ids: 1,2,3");
  prompt->excludes(ids);
  const std::string encoder = "Models with an encoder";
  run_command
      ->add_option("--decoder-prompt-ids", run_arguments.decoder_prompt_ids,
                   "The decoder's first token ids (default: the start token that the model's files name)")
      ->group(encoder);
  repeated(run_command->add_option("--encoder-input", run_arguments.encoder_inputs,
                                   "[GRAPH.]NAME=FILE.npy: an array for an input (may be repeated)"),
           "NAME=FILE")
      ->group(encoder);
  const char* images = "Images and sounds";
  const auto several = [&](const char* name, std::vector<std::string>& to, const char* type, const char* what) {
    repeated(run_command->add_option(name, to, what), type)->group(images);
  };
  several("--image", run_arguments.images, "FILE",
          "A png, jpeg, webp or gif of the prompt (may be repeated, in order)");
  several("--audio", run_arguments.sounds, "FILE",
          "A wav, flac, mp3 or ogg file of the prompt (may be repeated, in order)");
  several("--processor", run_arguments.processor, "KEY=VALUE",
          "A setting of preprocessor_config.json (may be repeated)");
  run_command->add_option("--max-pixels", run_arguments.max_pixels, "Most pixels of an image (default 64000000)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->group(images);
  run_command->add_option("--source-lang", run_arguments.source_language, "Language of the prompt")
      ->type_name("CODE")
      ->group(encoder);
  run_command->add_option("--target-lang", run_arguments.target_language, "Language of the answer")
      ->type_name("CODE")
      ->group(encoder);
  run_command->add_flag("--chat", run_arguments.chat, "Apply the chat template to the prompt");
  RunArguments chat_arguments;
  chat_arguments.generate.max_new_tokens = 1024;
  CLI::App* chat_command = app.add_subcommand("chat", "Talk with a model; /help lists what else it takes");
  chat_command->add_option("model", chat_arguments.model, "Model folder")->required();
  for (auto& [command, arguments] :
       {std::pair<CLI::App*, RunArguments&>{run_command, run_arguments}, {chat_command, chat_arguments}})
    add_run_options(*command, arguments);
  add_report_options(*run_command, run_arguments.generate);
  add_prefix_cache_option(*run_command, run_arguments.generate.prefix_cache);
  run_command
      ->add_option("--trace", run_arguments.trace, "Write what each thread ran when, for Perfetto or chrome://tracing")
      ->check([](const std::string& file) { return file.empty() ? std::string("a file is wanted") : std::string(); });
  run_command->add_flag("--naive", run_arguments.naive, "Run the graph literally: past in, present out, Concat copies")
      ->excludes(run_command->get_option("--draft"));
  run_command->add_flag("--json", run_arguments.json, "Print one JSON object instead of the text");

  BatchArguments batch_arguments;
  CLI::App* batch_command = app.add_subcommand("batch", "Answer a file of requests, one a line, in OpenAI's format");
  batch_command->add_option("model", batch_arguments.model, "Model folder")->required();
  batch_command->add_option("file", batch_arguments.input, "Requests, JSON lines; - is standard input")->required();
  batch_command
      ->add_option("-o,--output", batch_arguments.output, "Answers, in the order that they finish (default: -)")
      ->type_name("FILE");
  batch_command->add_flag("--strict", batch_arguments.strict,
                          "Refuse names that no body knows, in place of ignoring them");
  batch_command->add_flag("--resume", batch_arguments.resume, "Go on with an output that an earlier run left");
  batch_command->add_option("--max-running", batch_arguments.max_running, "Most requests that run at once (64)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  batch_command->add_option("--stats", batch_arguments.stats, "Write what it took to this file, one JSON object")
      ->type_name("FILE");
  add_prefix_cache_option(*batch_command, batch_arguments.reuse);
  add_load_options(*batch_command, batch_arguments);

  TranscribeArguments transcribe_arguments;
  CLI::App* transcribe_command = app.add_subcommand("transcribe", "Write down what recordings say");
  add_transcribe_options(*transcribe_command, transcribe_arguments);
  add_variant_option(*transcribe_command, transcribe_arguments.variants);

  EmbedArguments embed_arguments;
  CLI::App* embed_command = app.add_subcommand("embed", "Embeddings of texts, or scores of pairs");
  add_embed_options(*embed_command, embed_arguments);
  add_variant_option(*embed_command, embed_arguments.variants);
  ServeArguments serve_arguments;
  CLI::App* serve_command = app.add_subcommand("serve", "Answer requests of OpenAI's API over HTTP");
  add_serve_options(*serve_command, serve_arguments);
  add_prefix_cache_option(*serve_command, serve_arguments.reuse);

  PerplexityArguments perplexity_arguments;
  CLI::App* perplexity_command = app.add_subcommand("perplexity", "Measure how well a model foretells a text");
  perplexity_command->add_option("model", perplexity_arguments.model, "Model folder")->required();
  perplexity_command->add_option("file", perplexity_arguments.file, "The text, UTF-8; -: standard input")->required();
  add_load_options(*perplexity_command, perplexity_arguments);
  perplexity_command->get_option("--context")->description("Tokens of a window (default: the model's context)");
  perplexity_command
      ->add_option("--stride", perplexity_arguments.stride,
                   "Tokens from one window to the next (default: half a window)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  perplexity_command->add_flag("--naive", perplexity_arguments.naive, "Run the graph literally, token by token");
  perplexity_command->add_flag("--json", perplexity_arguments.json, "Print one JSON object");

  InspectArguments inspect_arguments;
  CLI::App* inspect_command = app.add_subcommand("inspect", "Show inputs, states, placement and what was recognised");
  inspect_command->add_option("model", inspect_arguments.model, "Model folder or .onnx file")->required();
  inspect_command->add_flag("--json", inspect_arguments.json, "Print one JSON object");
  inspect_command->add_option("--html", inspect_arguments.html,
                              "Write the placement as a picture, one page, to this file");
  inspect_command
      ->add_option("--kv-type", inspect_arguments.kv_type, "Element type of attention states (default: auto)")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "q8"}));
  add_variant_option(*inspect_command, inspect_arguments.variants);
  inspect_command->add_option("--memory", inspect_arguments.memory, "Budget for weights, arena and state, e.g. 2GiB");

  CheckArguments check_arguments;
  CLI::App* check_command = app.add_subcommand("check", "Say whether a model runs, and if not why");
  add_check_options(*check_command, check_arguments);
  add_variant_option(*check_command, check_arguments.variants);

  PullArguments pull_arguments;
  CLI::App* pull_command = app.add_subcommand("pull", "Fetch a model by its name, and print its folder");
  add_pull_options(*pull_command, pull_arguments);
  add_variant_option(*pull_command, pull_arguments.variants);

  ListArguments list_arguments;
  CLI::App* list_command = app.add_subcommand("list", "List the models that were fetched by their names");
  add_list_options(*list_command, list_arguments);
  RemoveArguments remove_arguments;
  CLI::App* remove_command = app.add_subcommand("rm", "Remove a model that was fetched");
  add_rm_options(*remove_command, remove_arguments);
  PruneArguments prune_arguments;
  CLI::App* cache_command = app.add_subcommand("cache", "What fetched models take: prune");
  cache_command->require_subcommand(1);
  add_prune_options(*cache_command->add_subcommand("prune", "Remove what no model needs any more"), prune_arguments);

  BenchArguments bench_arguments;
  CLI::App* bench_command = app.add_subcommand("bench", "Measure decode and prefill speed");
  bench_command->add_option("model", bench_arguments.model, "Model folder or .onnx file")->required();
  add_variant_option(*bench_command, bench_arguments.variants);
  bench_command->add_option("-p", bench_arguments.prompt, "Prompt tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  bench_command->add_option("-n", bench_arguments.tokens, "Tokens to generate")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  bench_command->add_option("-d", bench_arguments.depths,
                            "Past tokens before the prompt is timed, one or more: 35,512,2048");
  bench_command->add_option("--reps", bench_arguments.reps, "Repetitions; medians are printed, --json has means too")
      ->check(CLI::Range(1, 1000));
  bench_command->add_option("--threads", bench_arguments.threads, "Threads")
      ->check(CLI::Range(1, int{situ::Runtime::kMostThreads}));
  bench_command->add_option("--kv-type", bench_arguments.kv_type, "Element type of attention states (default: auto)")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "q8"}));
  bench_command->add_option("--vs", bench_arguments.versus, "Compare with: naive")->check(CLI::IsMember({"naive"}));
  CLI::Option* streams = bench_command
                             ->add_option("--streams", bench_arguments.streams,
                                          "Requests in flight, of -p prompt and -n answer tokens each: 1,4,16")
                             ->excludes(bench_command->get_option("--vs"))
                             ->excludes(bench_command->get_option("-d"));
  bench_command->add_option("--requests", bench_arguments.requests, "So many in all (default: as many as --streams)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(streams);
  bench_command
      ->add_option("--rate", bench_arguments.rate, "They arrive at random, so many a second on average (Poisson)")
      ->check(CLI::PositiveNumber)
      ->needs(streams);
  bench_command->add_option("--prompt", bench_arguments.prompts, "Prompt tokens A-B, drawn evenly, in place of -p")
      ->type_name("A-B")
      ->needs(streams);
  bench_command->add_option("--answer", bench_arguments.answers, "Answer tokens A-B, drawn evenly, in place of -n")
      ->type_name("A-B")
      ->needs(streams);
  CLI::Option* sample =
      bench_command->add_flag("--sample", bench_arguments.sample, "Draw tokens at random")->needs(streams);
  bench_command->add_option("--temperature", bench_arguments.temperature, "Of --sample (1)")
      ->check(CLI::NonNegativeNumber)
      ->needs(sample);
  bench_command->add_option("--top-p", bench_arguments.top_p, "Of --sample (1)")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(sample);
  add_slots_option(*bench_command, bench_arguments.slots);
  bench_arguments.reuse = situ::PrefixReuse::kOff;
  add_prefix_cache_option(*bench_command, bench_arguments.reuse);
  bench_command->add_flag("--json", bench_arguments.json, "Print one JSON object");

  const std::pair<CLI::App*, bool*> packing[] = {{inspect_command, &inspect_arguments.no_pack_cache},
                                                 {bench_command, &bench_arguments.no_pack_cache},
                                                 {transcribe_command, &transcribe_arguments.no_pack_cache},
                                                 {embed_command, &embed_arguments.no_pack_cache}};
  for (const auto& [command, flag] : packing)
    command->add_flag("--no-pack-cache", *flag, "Neither use nor save packed weights of other runs");

  const std::vector<CLI::App*> commands = app.get_subcommands([](CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(commands.begin(), commands.end(), [&](CLI::App* c) { return c->get_name() == argv[1]; })) {
    std::string names;
    for (const CLI::App* c : commands) names += (names.empty() ? "" : ", ") + c->get_name();
    return fail("'" + std::string(argv[1]) + "' is none of the commands: " + names);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help, or the version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(e.what());
  }
  if (!serve_arguments.config.empty())
    if (const situ::Status read = read_config(*serve_command, serve_arguments); !read.is_ok())
      return fail(read.message());
  const int code = *run_command          ? run(run_arguments)
                   : *chat_command       ? chat(chat_arguments)
                   : *batch_command      ? batch(batch_arguments)
                   : *transcribe_command ? transcribe(transcribe_arguments)
                   : *embed_command      ? embed(embed_arguments)
                   : *serve_command      ? serve(serve_arguments)
                   : *perplexity_command ? perplexity(perplexity_arguments)
                   : *inspect_command    ? inspect(inspect_arguments)
                   : *check_command      ? check(check_arguments)
                   : *pull_command       ? pull(pull_arguments)
                   : *list_command       ? list(list_arguments)
                   : *remove_command     ? remove(remove_arguments)
                   : *cache_command      ? prune(prune_arguments)
                                         : bench(bench_arguments);
  if (!flush_output() && code == kDone) return fail(kNoOutput);
  return code;
}

// What would end the program by a signal becomes an error of the call: nobody reads the output, a file is too large; or
// one line: a mapped file is gone. And no file that is opened later may take the number of a standard stream that is
// closed.
static void settle_process() {
  situ::cli::leave_on_interrupt();
  situ::cli::leave_on_bus_error();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);  // writing to it fails
}

// Errors are results; what is thrown all the same is the system's, such as no memory left.
int main(int argc, char** argv) {
  settle_process();
  try {
    return run_command_line(argc, argv);
  } catch (const std::exception& e) {
    return situ::cli::fail(std::string("stopped: ") + e.what());
  }
}
