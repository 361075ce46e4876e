// `situ check`: whether a model runs, as what, and if not why.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "situ/load_options.h"
#include "situ/tools.h"

namespace situ::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPrompts = 4, kMostPrompts = 1000;

std::string line(const Json& text) { return one_line(text.get<std::string>()); }

// "operator  com.microsoft.X (opset 1): not supported; 24 nodes, first '/layers.0/x'"
void print_reason(const Json& r) {
  std::string what;
  if (r["operator"].is_string()) {
    const std::string domain = r["domain"].is_string() ? r["domain"].get<std::string>() : "";
    what = (domain.empty() || domain == "ai.onnx" ? "" : domain + ".") + r["operator"].get<std::string>();
    if (r["opset"].is_number()) what += " (opset " + std::to_string(r["opset"].get<int64_t>()) + ")";
    what += ": ";
  }
  what += r["detail"].get<std::string>();
  if (r["count"].is_number()) {
    const int64_t count = r["count"];
    what += "; " + std::to_string(count) + (count == 1 ? " node" : " nodes, first");
    what += " '" + r["first_node"].get<std::string>() + "'";
  }
  std::printf("  %-10s %s\n", r["kind"].get<std::string>().c_str(), one_line(what).c_str());
}

// What to type next.
std::string command_for(const Json& j, const std::string& model) {
  const std::string as = j["as"];
  const std::string name = shell_word(model);
  if (as == "embeddings") return "situ embed " + name + " \"...\"";
  if (as == "cross-encoder") return "situ embed " + name + " \"...\" --pair \"...\"";
  if (j["speech"].get<bool>()) return "situ transcribe " + name + " FILE";
  if (as == "encoder-decoder of arrays") return "situ run " + name + " --encoder-input NAME=FILE.npy";
  return j["tokenizer"].get<bool>() ? "situ run " + name + " \"...\"" : "situ run " + name + " --prompt-ids 1,2,3";
}

std::string bytes_text(const Json& j, const char* key) { return size_text(j[key].get<double>()); }

void print_facts(const Json& j) {
  if (!j["weight_bytes"].is_number()) return;
  std::printf("%s, %s, %s of weights", j["architecture"].is_string() ? line(j["architecture"]).c_str() : "unnamed",
              line(j["precision"]).c_str(), bytes_text(j, "weight_bytes").c_str());
  if (j["memory_at_full_context"].is_number())
    std::printf("; %lld tokens of context, %s in use when it is full",
                static_cast<long long>(j["context_length"].get<int64_t>()),
                bytes_text(j, "memory_at_full_context").c_str());
  std::printf("; %s\n", j["chat_template"].get<bool>() ? "a chat template"
                        : j["tokenizer"].get<bool>()   ? "no chat template"
                                                       : "no tokenizer");
}

void print(const Json& j) {
  if (j["runs"].get<bool>())
    std::printf("Runs: %s\n", line(j["as"]).c_str());
  else
    std::printf("Does not run%s\n", j["as"].is_string() ? (", as " + line(j["as"])).c_str() : "");
  if (!j["reasons"].empty()) std::printf("Reasons\n");
  for (const Json& r : j["reasons"]) print_reason(r);
  if (j["bytes_copied_per_token_planned"].is_number())
    std::printf("%zu programs, %zu states, %lld bytes copied per token\n", j["programs"].size(), j["states"].size(),
                static_cast<long long>(j["bytes_copied_per_token_planned"].get<int64_t>()));
  print_facts(j);
  if (j.contains("verify")) {
    const Json& v = j["verify"];
    const double none = std::numeric_limits<double>::infinity();  // JSON has no number for it
    const auto number = [&](const char* key) { return v[key].is_number() ? v[key].get<double>() : none; };
    std::printf("Verified on %lld prompts, %lld tokens: largest difference %.3g, largest logit %.3g, ids %s\n",
                static_cast<long long>(v["prompts"].get<int64_t>()), static_cast<long long>(v["tokens"].get<int64_t>()),
                number("largest_difference"), number("largest_logit"), v["ids_equal"].get<bool>() ? "equal" : "differ");
    if (v.contains("error")) std::printf("  not all of it: %s\n", line(v["error"]).c_str());
  }
  for (const Json& note : j["notes"]) std::printf("Note: %s\n", line(note).c_str());
  for (const Json& text : j["try"]) std::printf("Try: %s\n", line(text).c_str());
  if (j.contains("run")) std::printf("Run it: %s\n", line(j["run"]).c_str());
}

}  // namespace

void add_check_options(CLI::App& command, CheckArguments& a) {
  command.add_option("model", a.model, "Folder, .onnx file or name of a model");
  command
      .add_option("--verify", a.verify,
                  "Compare the placed programs with the literal graph on N prompts (" + std::to_string(kPrompts) + ")")
      ->expected(0, 1)
      ->type_name("[N]");
  command.add_flag("--json{facts}", a.json, "Print one JSON object; --json=full: all programs, states and operators")
      ->check([](const std::string& text) {
        return text == "facts" || text == "full" ? std::string() : "'" + text + "' is none of facts, full";
      });
  add_load_options(command, a);
}

int check(CheckArguments a) {
  int64_t prompts = 0;
  if (a.verify) {
    // `--verify MODEL` is the model's.
    if (a.model.empty() && a.verify->find_first_not_of("0123456789") != std::string::npos && *a.verify != "true")
      a.model = *std::exchange(a.verify, "");
    const bool usual = a.verify->empty() || *a.verify == "true";
    const auto [end, error] = std::from_chars(a.verify->data(), a.verify->data() + a.verify->size(), prompts);
    if (usual) prompts = kPrompts;
    if (!usual &&
        (error != std::errc() || end != a.verify->data() + a.verify->size() || prompts < 1 || prompts > kMostPrompts))
      return fail("--verify '" + *a.verify + "' should be a number of prompts from 1 to " +
                  std::to_string(kMostPrompts));
  }
  if (a.model.empty()) return fail("model is required");
  const std::string typed = a.model;
  if (const int code = find_model(a, "check"); code != kDone) return code;
  Waiting waiting(loading_line(typed));
  const Check made = situ::check(a.model, a.load, prompts);
  waiting.stop();
  Json facts = Json::parse(made.json);
  if (made.runs) facts["run"] = command_for(facts, typed);
  if (a.json == "facts")
    for (const char* part : {"programs", "states", "recognised"}) facts.erase(part);
  if (a.json.empty())
    print(facts);
  else
    std::printf("%s\n", facts.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return made.runs && made.verified ? kDone : kRefused;
}

}  // namespace situ::cli
