#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "cli/closest.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/serve.h"
#include "cli/version.h"

namespace situ::cli {
namespace {

// A command with its arguments, which live as long as the parser. `run` is called once they are parsed.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

template <typename Arguments, typename Result, typename Given>
Command add(CLI::App& to, const char* name, const char* help, void (*options)(CLI::App&, Arguments&),
            Result (*run)(Given)) {
  CLI::App* const command = to.add_subcommand(name, help);
  command->set_help_all_flag("--help-all", "Print all options");
  command->allow_extras();  // unknown_argument() tells of them
  const auto arguments = std::make_shared<Arguments>();
  options(*command, *arguments);
  return {command, [arguments, run] { return run(*arguments); }};
}

std::vector<Command> add_commands(CLI::App& app) {
  std::vector<Command> all = {
      add(app, "run", "Answer a prompt", add_run_options, run),
      add(app, "chat", "Talk with a model; /help lists what else it takes", add_chat_options, chat),
      add(app, "serve", "Answer OpenAI's API over HTTP", add_serve_options, serve),
      add(app, "transcribe", "Write down what recordings say", add_transcribe_options, transcribe),
      add(app, "embed", "Print embeddings of texts, or scores of pairs", add_embed_options, embed),
      add(app, "batch", "Answer a file of requests, one a line, in OpenAI's format", add_batch_options, batch),
      add(app, "check", "Say whether a model runs, and if not why", add_check_options, check),
      add(app, "pull", "Fetch a model by its name, and print its folder", add_pull_options, pull),
      add(app, "list", "List the models that were fetched by their names", add_list_options, list),
      add(app, "rm", "Remove a model that was fetched", add_rm_options, remove),
      add(app, "inspect", "Show inputs, states, placement and what was recognised", add_inspect_options, inspect),
      add(app, "bench", "Measure decode and prefill speed", add_bench_options, bench),
      add(app, "perplexity", "Measure how well a model predicts a text", add_perplexity_options, perplexity),
  };
  CLI::App* const cache = app.add_subcommand("cache", "Look after the files of fetched models");
  cache->require_subcommand(1);
  all.push_back(add(*cache, "prune", "Remove what no model needs any more", add_prune_options, prune));
  // It is told of before the parser sees it.
  app.add_subcommand("help", "Print the help of a command");
  return all;
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(c->get_name());
  return names;
}

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return flush_output() ? static_cast<int>(kDone) : fail_output();
}

int no_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = names_of(app);
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  const std::string meant = did_you_mean(word, names);
  return fail("'" + word + "' is no command" + (meant.empty() ? ": " + all : meant));
}

// `situ help`, `situ help COMMAND`.
int help(const CLI::App& app, int argc, char** argv) {
  if (argc < 3) return print(commands_help(app));
  const CLI::App* command = &app;
  for (int i = 2; i < argc; ++i) {
    const std::vector<const CLI::App*> inner =
        command->get_subcommands([&](const CLI::App* c) { return c->get_name() == argv[i]; });
    if (inner.empty()) return no_command(*command, argv[i]);
    command = inner[0];
  }
  return print(command->get_name() == "help" ? commands_help(app) : command_help(*command, false));
}

// The command that the words lead to so far.
const CLI::App& reached(const CLI::App& app) {
  const CLI::App* command = &app;
  for (auto inner = command->get_subcommands(); !inner.empty(); inner = command->get_subcommands())
    command = inner.back();
  return *command;
}

int fail_parse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = reached(app);
  if (error.get_name() == "RequiredError" && command.get_parent()) {
    const std::vector<std::string> words = command.remaining();
    if (!words.empty() && !names_of(command).empty()) return no_command(command, words[0]);
    return fail(std::string(error.what()) + ": " + usage_of(command));
  }
  return fail(error.what());
}

int run_command_line(int argc, char** argv) {
  CLI::App app{"Situ runs generative ONNX models on CPUs, without copying the KV cache."};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", [] { return version_lines(); });
  const std::vector<Command> commands = add_commands(app);
  if (argc < 2) return print(first_help());
  const std::string word = argv[1];
  if (word == "help") return help(app, argc, argv);
  const std::vector<std::string> names = names_of(app);
  if (word.empty() || word[0] != '-')
    if (std::find(names.begin(), names.end(), word) == names.end()) return no_command(app, word);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& e) {
    return print(e.what());
  } catch (const CLI::Success& e) {
    const CLI::App& command = reached(app);
    if (!command.get_parent()) return print(commands_help(app));
    return print(command_help(command, e.get_name() == "CallForAllHelp"));
  } catch (const CLI::ParseError& e) {
    return fail_parse(app, e);
  }
  if (const std::string unknown = unknown_argument(reached(app)); !unknown.empty()) return fail(unknown);
  for (const Command& c : commands) {
    if (!*c.app) continue;
    const int code = c.run();
    return !flush_output() && code == kDone ? fail_output() : code;
  }
  return kDone;
}

// What would end the program by a signal becomes an error of the call: nobody reads the output, a file is too large; or
// one line: a mapped file is gone. And no file that is opened later may take the number of a standard stream that is
// closed.
void settle_process() {
  leave_on_interrupt();
  leave_on_bus_error();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);  // writing to it fails
}

}  // namespace

int run_program(int argc, char** argv) {
  settle_process();
  // Errors are results; what is thrown all the same is the system's, such as no memory left.
  try {
    return run_command_line(argc, argv);
  } catch (const std::exception& e) {
    return fail(std::string("stopped: ") + e.what(), kFailed);
  }
}

}  // namespace situ::cli
