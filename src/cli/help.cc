#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "cli/closest.h"
#include "cli/common.h"
#include "cli/options.h"

namespace situ::cli {
namespace {

constexpr size_t kColumn = 30, kWidth = 110;

struct Example {
  const char *command, *line, *what;
};
// The first of a command stands in first_help() where `what` is not empty.
constexpr Example kExamples[] = {
    {"run", "situ run smollm2 \"When does summer start?\"", "answer a prompt"},
    {"run", "git diff | situ run smollm2 \"Summarise this change.\"", ""},
    {"chat", "situ chat smollm2", "talk with a model"},
    {"serve", "situ serve smollm2 --port 8080", "answer OpenAI's API over HTTP"},
    {"transcribe", "situ transcribe whisper-base talk.mp3 --format srt", "speech to text and subtitles"},
    {"embed", "situ embed bge-small \"a text\" \"another\" --json", "embeddings of texts, scores of pairs"},
    {"check", "situ check my-model/", "does a model run, and if not why"},
    {"batch", "situ batch smollm2 requests.jsonl -o answers.jsonl", ""},
    {"pull", "situ pull smollm2:fp16", ""},
    {"list", "situ list --names", ""},
    {"rm", "situ rm smollm2", ""},
    {"cache", "situ cache prune --to 20GB", ""},
    {"prune", "situ cache prune --to 20GB", ""},
    {"inspect", "situ inspect smollm2 --html placement.html", ""},
    {"bench", "situ bench smollm2 -d 35,512,2048 --vs naive", ""},
    {"perplexity", "situ perplexity smollm2 book.txt", ""},
};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool takes_many(const CLI::Option& o) { return o.get_items_expected_max() >= kMany; }

// "[TEXT...]"
std::string positional_name(const CLI::Option& o) {
  const std::string name = upper(o.get_single_name()) + (takes_many(o) ? "..." : "");
  return o.get_required() ? name : "[" + name + "]";
}

// What stands behind the name of an option: "N".
std::string value_word(const CLI::Option& o) {
  if (o.get_type_size() == 0) return "";
  const std::string type = o.get_type_name();
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "X";
  return type;
}

// "-n, --tokens N"
std::string option_names(const CLI::Option& o) {
  std::string names;
  for (const std::string& name : o.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : o.get_lnames()) names += (names.empty() ? "    --" : ", --") + name;
  const std::string value = value_word(o);
  return value.empty() ? names : names + " " + value;
}

// "  LEFT   RIGHT", RIGHT in as many lines as it takes.
std::string entry(const std::string& left, const std::string& right) {
  std::string text = "  " + left, line;
  size_t column = text.size();
  if (column + 1 >= kColumn) {
    text += "\n";
    column = 0;
  }
  const auto end_line = [&] {
    text += std::string(kColumn - column, ' ') + line + "\n";
    column = 0;
    line.clear();
  };
  for (size_t at = 0; at < right.size();) {
    const size_t end = std::min(right.find(' ', at), right.size());
    const std::string word = right.substr(at, end - at);
    if (!line.empty() && kColumn + line.size() + 1 + word.size() > kWidth) end_line();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  end_line();
  return text;
}

std::string described(const CLI::Option& o) {
  const std::string fallback = o.get_default_str();
  return o.get_description() + (fallback.empty() ? "" : " [default: " + fallback + "]");
}

// Groups in the order in which their first options were added; those of more() only with `all`.
std::string groups_of(const CLI::App& command, bool all, bool* left_out) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const CLI::Option* o : command.get_options()) {
    std::string group = o->get_group();
    if (group.empty() || o->get_positional() || o == command.get_help_ptr() || o == command.get_help_all_ptr())
      continue;
    const bool is_more = group[0] == '+';
    if (is_more && !all) *left_out = true;
    if (is_more && !all) continue;
    if (is_more) group.erase(0, 1);
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
    if (found == groups.end()) found = groups.insert(groups.end(), {group, ""});
    found->second += entry(option_names(*o), described(*o));
  }
  std::string text;
  for (const auto& [group, entries] : groups) text += group + ":\n" + entries;
  return text;
}

}  // namespace

std::string usage_of(const CLI::App& command) {
  std::string usage = "situ " + command.get_name();
  if (command.get_parent() && command.get_parent()->get_parent())
    usage = "situ " + command.get_parent()->get_name() + " " + command.get_name();
  for (const CLI::Option* o : command.get_options())
    if (o->get_positional()) usage += " " + positional_name(*o);
  return usage;
}

std::string first_help() {
  std::string text = "Situ runs generative ONNX models on CPUs.\n\n";
  std::string shown;
  for (const Example& e : kExamples) {
    if (*e.what == 0 || shown == e.command) continue;
    shown = e.command;
    const std::string line = std::string("  ") + e.line;
    text += line + std::string(line.size() < 56 ? 56 - line.size() : 1, ' ') + e.what + "\n";
  }
  return text +
         "\nA model is a folder, an .onnx file or a name: situ list --names. More: situ help COMMAND, situ --help.\n";
}

std::string commands_help(const CLI::App& app) {
  std::string text = app.get_description() + "\n\nUsage: situ COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!c->get_group().empty()) text += entry(c->get_name(), c->get_description());
  text += "\nOptions:\n" + entry("-h, --help", "Print this, or the help of a command") +
          entry("    --help-all", "Print all options of a command") + entry("-V, --version", "Print the version") +
          "\nExit codes:\n";
  for (const ExitMeaning& e : exit_codes()) text += entry(std::to_string(e.code), e.meaning);
  return text;
}

std::string command_help(const CLI::App& command, bool all) {
  std::string text = "Usage: " + usage_of(command) + " [OPTIONS]\n\n" + command.get_description() + "\n";
  std::string examples;
  for (const Example& e : kExamples)
    if (command.get_name() == e.command) examples += std::string("  ") + e.line + "\n";
  if (!examples.empty()) text += "\nExamples:\n" + examples;
  const std::vector<const CLI::App*> inner = command.get_subcommands([](const CLI::App*) { return true; });
  if (!inner.empty()) text += "\nCommands:\n";
  for (const CLI::App* c : inner) text += entry(c->get_name(), c->get_description());
  std::string arguments;
  for (const CLI::Option* o : command.get_options())
    if (o->get_positional()) arguments += entry(upper(o->get_single_name()), described(*o));
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  bool left_out = false;
  const std::string options = groups_of(command, all, &left_out);
  if (!options.empty()) text += (arguments.empty() ? "\n" : "") + options;
  if (left_out) text += "All options: situ " + command.get_name() + " --help-all\n";
  return text;
}

std::string unknown_argument(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* o : command.get_options())
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
  for (const std::string& argument : command.remaining(true)) {
    if (argument == "--") continue;
    if (argument.size() < 2 || argument[0] != '-')
      return "'" + argument + "' is one argument too many: " + usage_of(command) +
             "; a text of several words stands in quotes";
    const std::string name = argument.substr(0, argument.find('='));
    const std::string meant = did_you_mean(name, names);
    return "there is no option " + name + (meant.empty() ? "; situ " + command.get_name() + " --help-all" : meant);
  }
  return "";
}

}  // namespace situ::cli
