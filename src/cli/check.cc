// `situ check`: whether a model runs, as what, and if not why.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/models.h"
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
}

}  // namespace

void add_check_options(CLI::App& command, CheckArguments& a) {
  command.add_option("model", a.model, "Model folder or .onnx file");
  command.add_flag("--json", a.json, "Print one JSON object");
  command.add_option("--context", a.context, "Tokens that a sequence may hold (default: the model's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command
      .add_option(
          "--verify", a.verify,
          "Run the graph literally beside the placed programs, on so many prompts (" + std::to_string(kPrompts) + ")")
      ->expected(0, 1)
      ->type_name("[N]");
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
  LoadOptions load;
  load.variants = a.variants;
  load.context_length = a.context;
  if (const int code = find_model(a.model, load, "check"); code != kDone) return code;
  const Check made = situ::check(a.model, load, prompts);
  if (a.json)
    std::printf("%s\n", made.json.c_str());
  else
    print(Json::parse(made.json));
  return made.runs && made.verified ? kDone : kRefused;
}

}  // namespace situ::cli
