// `situ inspect`: what a model takes and gives, which states it has, where its values live, what was
// recognised, and what could not be placed.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/inspect_html.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "situ/model.h"
#include "situ/tools.h"

namespace situ::cli {
namespace {

using Json = nlohmann::ordered_json;

// "12 x rotary: 64 half dims (/layers.0/..., ...)" instead of twelve lines.
void print_found(const Json& found) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const Json& f : found) {
    const std::string key = f["kind"].get<std::string>() + ": " + f["what"].get<std::string>();
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == key; });
    if (it == groups.end()) it = groups.insert(groups.end(), {key, {}});
    it->second.push_back(f["where"]);
  }
  for (const auto& [key, where] : groups)
    std::printf("  %4zu x %s   (first: %s)\n", where.size(), key.c_str(), where[0].c_str());
  if (groups.empty()) std::printf("  nothing\n");
}

void print_placement(const char* title, const Json& table) {
  std::printf("%s\n", title);
  for (const auto& [op, how] : table.items()) {
    std::string text;
    for (const auto& [place, count] : how.items())
      text += (text.empty() ? "" : ", ") + std::to_string(count.get<int>()) + " " + place;
    std::printf("  %-28s %s\n", op.c_str(), text.c_str());
  }
}

void print_values(const char* title, const Json& values) {
  std::printf("%s\n", title);
  const size_t shown = values.size() > 8 ? 6 : values.size();
  for (size_t i = 0; i < shown; ++i)
    std::printf("  %-32s %s %s\n", values[i]["name"].get<std::string>().c_str(),
                values[i]["type"].get<std::string>().c_str(), values[i]["shape"].get<std::string>().c_str());
  if (shown < values.size()) std::printf("  ... and %zu more\n", values.size() - shown);
}

void print_states(const Json& states) {
  std::printf("States (%zu)\n", states.size());
  std::vector<std::pair<std::string, int>> groups;
  for (const Json& s : states) {
    const bool append = s.contains("bytes_per_token"), source = s.contains("bytes_per_source_row");
    std::string key = s["rule"].get<std::string>() +
                      (append ? " along axis " + std::to_string(s["axis"].get<int>()) : "") + ", " +
                      s["type"].get<std::string>() + " " + s["shape"].get<std::string>() +
                      (s.contains("encoding") ? " (" + s["encoding"].get<std::string>() + ")" : "") + ", " +
                      size_text(s[append   ? "bytes_per_token"
                                  : source ? "bytes_per_source_row"
                                           : "bytes"]
                                    .get<double>()) +
                      (append   ? " per token"
                       : source ? " per row of the source"
                                : "");
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == key; });
    if (it == groups.end())
      groups.emplace_back(key, 1);
    else
      ++it->second;
  }
  for (const auto& [key, count] : groups) std::printf("  %4d x %s\n", count, key.c_str());
}

void print_module(const Json& module) {
  std::printf("Programs\n");
  for (const Json& p : module["programs"]) {
    std::string assignment;
    for (const auto& [name, value] : p["assignment"].items())
      assignment += (assignment.empty() ? "" : ", ") + name + " = " +
                    (value.is_string() ? value.get<std::string>() : value.dump());
    std::printf("  %-8s %s {%s}: %lld kernel calls, arena %s\n", p["name"].get<std::string>().c_str(),
                p["graph"].get<std::string>().c_str(), assignment.c_str(),
                static_cast<long long>(p["kernel_calls"].get<int64_t>()),
                size_text(p["arena_bytes"].get<double>()).c_str());
  }
  std::printf("Spaces\n");
  for (const Json& s : module["spaces"])
    for (const auto& [key, unit] : {std::pair{"bytes_per_token", "token"},
                                    {"bytes_per_source_row", "source row"},
                                    {"bytes_per_sequence", "sequence and step"}})
      if (s.contains(key))
        std::printf("  %-10s %s, %s per %s, %lld slots\n", s["name"].get<std::string>().c_str(),
                    s["kind"].get<std::string>().c_str(), size_text(s[key].get<double>()).c_str(), unit,
                    static_cast<long long>(s["slots"].get<int64_t>()));
}

void print_copies(const Json& copies, bool later) {
  for (const auto& [phase, list] : copies.items()) {
    if (list.empty()) continue;
    std::printf("Copied in %s\n", phase.c_str());
    for (const Json& c : list)
      std::printf("  %s %s %s: %s\n", c["op"].get<std::string>().c_str(), c["node"].get<std::string>().c_str(),
                  c["shape"].get<std::string>().c_str(), c["reason"].get<std::string>().c_str());
  }
  if (std::all_of(copies.begin(), copies.end(), [](const Json& list) { return list.empty(); }))
    std::printf(later ? "Copied in the decoder: nothing\n" : "Copied: nothing\n");
  if (later) std::printf("Copied in the encoder: it is compiled when its arrays come, and cannot be shown before\n");
}

void print(const Json& j) {
  std::printf("%s\n  %s, %d nodes in the file, %d after passes, %d kernel calls per token (%s)\n\n",
              j["file"].get<std::string>().c_str(), j["producer"].get<std::string>().c_str(),
              j["nodes"]["in file"].get<int>(), j["nodes"]["after passes"].get<int>(),
              j["nodes"]["kernel calls per token"].get<int>(), j["isa"].get<std::string>().c_str());
  print_values("Inputs", j["inputs"]);
  print_values("Outputs", j["outputs"]);
  print_states(j["states"]);
  print_module(j["module"]);
  std::printf("Recognised\n");
  print_found(j["recognised"]);
  if (j.contains("recognised, one token")) {
    std::printf("Recognised in the program of one token (the export holds for two kinds of step only)\n");
    print_found(j["recognised, one token"]);
  }
  print_placement("Placement, one token (S = new tokens, P = past)", j["placement"]["decode"]);
  print_copies(j["copies"], !j["compiled later"].empty());
  const std::string alone = j["sequences"]["one at a time"];
  if (alone.empty())
    std::printf("Sequences: up to %lld in one step (L = tokens whose logits it gives)\n",
                static_cast<long long>(j["sequences"]["in one step"].get<int64_t>()));
  else
    std::printf("Sequences: prompts one at a time, since %s; single tokens of up to %lld in one step\n", alone.c_str(),
                static_cast<long long>(j["sequences"]["single tokens in one step"].get<int64_t>()));
  if (const std::string why = j["prompts"]["why"]; !why.empty())
    std::printf("Prompts: %s, since %s\n", j["prompts"]["fed"].get<std::string>().c_str(), why.c_str());
  const Json& m = j["memory"];
  const double computed = m["computed"].get<double>();
  std::printf(
      "Memory\n  weights %s%s, arena %s (prompt chunks of %lld) / %s (one token), inputs and logits %s, state %s per "
      "token\n",
      size_text(m["weights"].get<double>()).c_str(),
      computed > 0 ? (" and " + size_text(computed) + " more as computed from them").c_str() : "",
      size_text(m["arena"].get<double>()).c_str(), static_cast<long long>(m["chunk"].get<int64_t>()),
      size_text(m["arena_decode"].get<double>()).c_str(), size_text(m["io"].get<double>()).c_str(),
      size_text(m["state_bytes_per_token"].get<double>()).c_str());
  std::printf("  %lld slots (the context), %s when full\n", static_cast<long long>(m["slots"].get<int64_t>()),
              size_text(m["slots"].get<double>() * m["state_bytes_per_token"].get<double>()).c_str());
  std::printf("  programs share %s of activations; an arena for each would take %s, that of %lld slots more\n",
              size_text(m["arena_bytes"].get<double>()).c_str(),
              size_text(m["arena_bytes_unshared"].get<double>()).c_str(),
              static_cast<long long>(m["slots_gained"].get<int64_t>()));
  if (m.contains("budget"))
    std::printf("  a budget of %s holds %lld slots\n", size_text(m["budget"].get<double>()).c_str(),
                static_cast<long long>(m["slots_in_budget"].get<int64_t>()));
  const Json& packs = j["packed weights"];
  std::printf("Packed weights\n  %s packed now, %s mapped%s%s\n", size_text(packs["packed"].get<double>()).c_str(),
              size_text(packs["mapped"].get<double>()).c_str(), packs["file"] == "" ? "" : " from ",
              packs["file"].get<std::string>().c_str());
  if (packs["not saved"] != "") std::printf("  not saved: %s\n", packs["not saved"].get<std::string>().c_str());
  for (const Json& note : j["notes"]) std::printf("Note: %s\n", note.get<std::string>().c_str());
  std::printf("Unsupported: nothing\n");
}

// With names as a terminal may have them.
Json for_terminal(const Json& j) {
  if (j.is_string()) return one_line(j.get<std::string>());
  if (!j.is_structured()) return j;
  Json shown = j.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : j.items()) {
    if (j.is_array())
      shown.push_back(for_terminal(value));
    else
      shown[one_line(key)] = for_terminal(value);
  }
  return shown;
}

void print_refused(const Json& j) {
  if (j.contains("file")) {
    std::printf("%s\n  %s, %d nodes in the file\n\n", j["file"].get<std::string>().c_str(),
                j["producer"].get<std::string>().c_str(), j["nodes"]["in file"].get<int>());
    print_values("Inputs", j["inputs"]);
    print_values("Outputs", j["outputs"]);
    std::printf("Operators\n");
    for (const auto& [op, count] : j["operators"].items()) std::printf("  %-28s %d\n", op.c_str(), count.get<int>());
    std::printf("Unsupported\n  %s\n", j["unsupported"][0].get<std::string>().c_str());
    std::fflush(stdout);
  }
}

// One table for each graph that was compiled.
void print_passes(const Json& passes) {
  int64_t compilation = -1;
  for (const Json& p : passes) {
    if (const int64_t c = p["compilation"].get<int64_t>(); c != compilation) {
      std::printf("%sPasses of the %s (%s)\n  %-22s %9s %10s %8s %8s  %s\n", compilation < 0 ? "" : "\n",
                  p["graph"].get<std::string>().c_str(), p["for"].get<std::string>().c_str(), "pass", "ms", "visits",
                  "edits", "nodes", "digest");
      compilation = c;
    }
    std::printf("  %-22s %9.2f %10lld %8lld %8lld  %s\n", p["name"].get<std::string>().c_str(), p["ms"].get<double>(),
                static_cast<long long>(p["visits"].get<int64_t>()), static_cast<long long>(p["edits"].get<int64_t>()),
                static_cast<long long>(p["nodes"].get<int64_t>()), p["digest"].get<std::string>().c_str());
  }
}

int inspect_passes(const InspectArguments& a, int64_t budget, Waiting& waiting) {
  const PassReport report = situ::inspect_passes(a.model, a.load, budget);
  waiting.stop();
  if (a.json)
    std::printf("%s\n", report.json.c_str());
  else
    print_passes(Json::parse(report.json)["passes"]);
  std::fflush(stdout);
  const bool limited = budget > 0 || a.load.slots > 0 || a.load.context_length > 0;
  if (report.status.code() == Code::kNoRoom) return fail_load(report.status, limited);
  return report.status.is_ok() ? kDone : fail(report.status.message());
}

}  // namespace

void add_inspect_options(CLI::App& command, InspectArguments& a) {
  add_model(command, a);
  command.add_flag("--json", a.json, "Print one JSON object");
  CLI::Option* passes =
      command.add_flag("--passes", a.passes, "Print what each pass of the compiler did; with --json beside all else");
  command.add_option("--html", a.html, "Write the placement as a picture, one page, to this file")
      ->type_name("FILE")
      ->excludes(passes);
  add_load_options(command, a);
}

int inspect(InspectArguments a) {
  if (a.html)
    if (const Status good = check_writable(*a.html); !good.is_ok()) return fail(good.message(), kFailed);
  if (const int code = find_model(a, "inspect"); code != kDone) return code;
  const int64_t budget = std::exchange(a.load.memory, 0);  // of the report, not of the load
  Waiting waiting(loading_line(a.model));
  if (a.passes) return inspect_passes(a, budget, waiting);
  Result<Model> model = Model::load(a.model, a.load);
  waiting.stop();
  if (!model.is_ok()) {
    const std::string& reason = model.status().message();
    const bool of_model = model.status().code() != Code::kInvalidArgument;
    const bool limited = budget > 0 || a.load.slots > 0 || a.load.context_length > 0;
    if (model.status().code() == Code::kNoRoom) return fail_load(model.status(), limited);
    if (!of_model || a.html) return fail(reason);
    const std::string text = inspect_refused(a.model, a.load, reason);
    if (a.json)
      std::printf("%s\n", text.c_str());
    else
      print_refused(for_terminal(Json::parse(text)));
    return fail(reason);
  }
  const Result<std::string> text = situ::inspect(*model, budget);
  if (!text.is_ok()) return fail(text.status().message());
  if (a.html)
    if (const Status written = write_file(*a.html, html_page(Json::parse(*text))); !written.is_ok())
      return fail(written.message(), kFailed);
  if (a.json)
    std::printf("%s\n", text->c_str());
  else if (!a.html)
    print(for_terminal(Json::parse(*text)));
  return 0;
}

}  // namespace situ::cli
