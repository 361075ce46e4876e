// `situ inspect`: what a model takes and gives, which states it has, where its values live, what was
// recognised, and what could not be placed.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/terminal.h"
#include "pipelines/llm.h"

namespace situ::cli {
namespace {

Json values_json(const Graph& g, const std::vector<ValueId>& ids) {
  Json list = Json::array();
  for (ValueId v : ids) {
    Json j;
    j["name"] = g.values[v].name;
    j["type"] = dtype_name(g.values[v].info.type);
    j["shape"] = shape_str(g.values[v].info.shape, &g.symbol_names);
    list.push_back(j);
  }
  return list;
}

Json states_json(const InPlaceEngine& e) {
  Json list = Json::array();
  for (const StateLayout& s : e.prefill_plan().states) {
    const Graph& g = e.compiled().graph;
    Json j;
    if (!s.pair.here()) continue;
    if (s.pair.past != kNoValue) j["past"] = g.values[s.pair.past].name;
    if (s.pair.present != kNoValue) j["present"] = g.values[s.pair.present].name;
    j["rule"] = state_rule_name(s.pair.rule);
    j["type"] = dtype_name(s.type);
    j["shape"] =
        shape_str(g.values[s.pair.past != kNoValue ? s.pair.past : s.pair.present].info.shape, &g.symbol_names);
    if (s.pair.rule != StateRule::kReplace) j["axis"] = s.pair.axis;
    j[s.pair.rule == StateRule::kAppend   ? "bytes_per_token"
      : s.pair.rule == StateRule::kSource ? "bytes_per_source_row"
                                          : "bytes"] = s.slot_bytes();
    list.push_back(j);
  }
  return list;
}

// Operators of one program by how they were placed: {"MatMul": {"computed": 15}}.
Json placement_json(const Graph& g, const Plan& plan) {
  std::map<std::string, std::map<std::string, int>> table;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const std::string& how = plan.placed[n];
    const std::string op = (g.nodes[n].domain.empty() ? "" : g.nodes[n].domain + ".") + g.nodes[n].op;
    ++table[op][how.rfind("copied", 0) == 0 ? "copied" : how];
  }
  return Json(table);
}

Json copies_json(const Graph& g, const Plan& plan) {
  Json list = Json::array();
  for (const Step& s : plan.steps) {
    if (s.reason.empty()) continue;
    const Value& from = g.values[s.move ? s.from : g.nodes[s.node].in[0]];
    Json j;
    j["node"] = g.nodes[s.node].name;
    j["op"] = g.nodes[s.node].op;
    j["value"] = from.name;
    j["shape"] = shape_str(s.move ? s.from_home.view.dims : from.info.shape, &g.symbol_names);
    j["reason"] = s.reason;
    list.push_back(j);
  }
  return list;
}

Json found_json(const Compiled& c) {
  Json list = Json::array();
  for (const Finding& f : c.found) list.push_back({{"kind", f.kind}, {"where", f.where}, {"what", f.what}});
  return list;
}

Json describe(const Model::Impl& m, int64_t budget) {
  const InPlaceEngine& e = *m.in_place;
  const Graph& g = e.compiled().graph;
  Json j;
  j["file"] = m.folder.model_file.string();
  j["producer"] = m.files.decoder.producer;
  j["opsets"] = m.files.decoder.opsets;
  j["nodes"] = {{"in file", m.files.decoder.graph.nodes.size()},
                {"after passes", g.nodes.size()},
                {"kernel calls per token", e.kernel_calls()}};
  j["inputs"] = values_json(m.files.decoder.graph, m.files.decoder.graph.inputs);
  j["outputs"] = values_json(m.files.decoder.graph, m.files.decoder.graph.outputs);
  j["states"] = states_json(e);
  j["recognised"] = found_json(e.compiled());
  if (e.module().first_only) j["recognised, one token"] = found_json(e.module().token);
  j["placement"] = {{"prefill", placement_json(g, e.prefill_plan())},
                    {"decode", placement_json(e.decode_graph(), e.decode_plan())}};
  j["copies"] = {{"prefill", copies_json(g, e.prefill_plan())},
                 {"decode", copies_json(e.decode_graph(), e.decode_plan())}};
  if (e.encoder() && e.encoder()->plan()) {
    j["placement"]["encode"] = placement_json(e.encoder()->compiled()->graph, *e.encoder()->plan());
    j["copies"]["encode"] = copies_json(e.encoder()->compiled()->graph, *e.encoder()->plan());
  }
  const int64_t per_token = e.states().bytes_per_slot(), fixed = m.files.weight_bytes() + e.computed_bytes() +
                                                                 e.arena_bytes() + e.io_bytes() +
                                                                 e.states().fixed_bytes();
  Json memory;
  memory["weights"] = m.files.weight_bytes();
  memory["computed"] = e.computed_bytes();
  memory["arena"] = e.arena_bytes();
  memory["arena_decode"] = e.decode_plan().arena_bytes;
  memory["io"] = e.io_bytes();
  memory["chunk"] = e.chunk();
  memory["state_bytes_per_token"] = per_token;
  memory["state_fixed_bytes"] = e.states().fixed_bytes();
  memory["context"] = m.context_length;
  memory["slots"] = e.states().capacity();
  if (budget > 0) {
    memory["budget"] = budget;
    memory["slots_in_budget"] = per_token > 0 ? std::max<int64_t>(0, (budget - fixed) / per_token) : 0;
  }
  j["memory"] = memory;
  j["module"] = module_json(m);
  j["sequences"] = {
      {"in one step", m.batch()}, {"single tokens in one step", m.sequences()}, {"one at a time", e.one_sequence()}};
  const PackUse& packs = m.in_place->packs();
  j["packed weights"] = {{"packed", packs.packed_bytes},
                         {"mapped", packs.mapped_bytes},
                         {"file", packs.file},
                         {"not saved", packs.problem}};
  j["unsupported"] = Json::array();
  j["isa"] = kernels().isa;
  return j;
}

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
                      s["type"].get<std::string>() + " " + s["shape"].get<std::string>() + ", " +
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

void print_copies(const Json& copies) {
  for (const auto& [phase, list] : copies.items()) {
    if (list.empty()) continue;
    std::printf("Copied in %s\n", phase.c_str());
    for (const Json& c : list)
      std::printf("  %s %s %s: %s\n", c["op"].get<std::string>().c_str(), c["node"].get<std::string>().c_str(),
                  c["shape"].get<std::string>().c_str(), c["reason"].get<std::string>().c_str());
  }
  if (std::all_of(copies.begin(), copies.end(), [](const Json& list) { return list.empty(); }))
    std::printf("Copied: nothing\n");
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
  print_copies(j["copies"]);
  const std::string alone = j["sequences"]["one at a time"];
  if (alone.empty())
    std::printf("Sequences: up to %lld in one step (L = tokens whose logits it gives)\n",
                static_cast<long long>(j["sequences"]["in one step"].get<int64_t>()));
  else
    std::printf("Sequences: prompts one at a time, since %s; single tokens of up to %lld in one step\n", alone.c_str(),
                static_cast<long long>(j["sequences"]["single tokens in one step"].get<int64_t>()));
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
  if (m.contains("budget"))
    std::printf("  a budget of %s holds %lld slots\n", size_text(m["budget"].get<double>()).c_str(),
                static_cast<long long>(m["slots_in_budget"].get<int64_t>()));
  const Json& packs = j["packed weights"];
  std::printf("Packed weights\n  %s packed now, %s mapped%s%s\n", size_text(packs["packed"].get<double>()).c_str(),
              size_text(packs["mapped"].get<double>()).c_str(), packs["file"] == "" ? "" : " from ",
              packs["file"].get<std::string>().c_str());
  if (packs["not saved"] != "") std::printf("  not saved: %s\n", packs["not saved"].get<std::string>().c_str());
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

// What the file says of a model that cannot run; nothing where it cannot be read either.
int inspect_unsupported(const InspectArguments& a, const std::string& reason) {
  if (const Status names = check_disabled_names(); !names.is_ok()) return fail(reason);  // it is not the model's
  Json j{{"unsupported", Json::array({reason})}};
  const Result<ModelFolder> folder = open_model_folder(a.model);
  const Result<ImportedModel> imported =
      folder.is_ok() ? import_onnx(folder->model_file) : Result<ImportedModel>(folder.status());
  if (imported.is_ok()) {
    const Graph& g = imported->graph;
    std::map<std::string, int> operators;
    for (const Node& n : g.nodes) ++operators[(n.domain.empty() ? "" : n.domain + ".") + n.op];
    j["file"] = folder->model_file.string();
    j["producer"] = imported->producer;
    j["inputs"] = values_json(g, g.inputs);
    j["outputs"] = values_json(g, g.outputs);
    j["operators"] = operators;
    if (!a.json) {
      const Json shown = for_terminal(j);
      std::printf("%s\n  %s, %zu nodes in the file\n\n", shown["file"].get<std::string>().c_str(),
                  shown["producer"].get<std::string>().c_str(), g.nodes.size());
      print_values("Inputs", shown["inputs"]);
      print_values("Outputs", shown["outputs"]);
      std::printf("Operators\n");
      for (const auto& [op, count] : shown["operators"].items())
        std::printf("  %-28s %d\n", op.c_str(), count.get<int>());
      std::printf("Unsupported\n  %s\n", shown["unsupported"][0].get<std::string>().c_str());
      std::fflush(stdout);
    }
  }
  if (a.json) std::printf("%s\n", j.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return fail(reason);
}

}  // namespace

std::string size_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  while (bytes >= 1024 && u < 4) {
    bytes /= 1024;
    ++u;
  }
  char text[32];
  std::snprintf(text, sizeof(text), u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
  return text;
}

int inspect(const InspectArguments& a) {
  const Result<int64_t> budget = parse_memory(a.memory);
  if (!budget.is_ok()) return fail(budget.status().message());
  LoadOptions load;
  load.variants = a.variants;
  load.kv_type = a.kv_type;
  load.pack_cache = !a.no_pack_cache;
  Result<Model> model = Model::load(a.model, load);
  if (!model.is_ok()) return inspect_unsupported(a, model.status().message());
  model->impl().in_place->finish_saving();
  const Json j = describe(model->impl(), *budget);
  if (a.json)
    std::printf("%s\n", j.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  else
    print(for_terminal(j));
  return 0;
}

}  // namespace situ::cli
