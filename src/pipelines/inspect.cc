#include "situ/tools.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "base/out_of_memory.h"
#include "pipelines/inspect_memory.h"
#include "pipelines/inspect_module.h"
#include "pipelines/inspect_program.h"
#include "text/json_file.h"

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson values_json(const Graph& g, const std::vector<ValueId>& ids) {
  OrderedJson list = OrderedJson::array();
  for (ValueId v : ids) {
    OrderedJson j;
    j["name"] = g.values[v].name;
    j["type"] = dtype_name(g.values[v].info.type);
    j["shape"] = shape_str(g.values[v].info.shape, &g.symbol_names());
    list.push_back(j);
  }
  return list;
}

// Operators of one program by how they were placed: {"MatMul": {"computed": 15}}.
OrderedJson placement_json(const Graph& g, const Plan& plan) {
  std::map<std::string, std::map<std::string, int>> table;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const std::string& how = plan.placed[n];
    ++table[operator_name(g.nodes[n])][how.rfind("copied", 0) == 0 ? "copied" : how];
  }
  return OrderedJson(table);
}

OrderedJson copies_json(const Graph& g, const Plan& plan) {
  OrderedJson list = OrderedJson::array();
  for (const Step& s : plan.steps) {
    if (s.reason.empty()) continue;
    const Value& from = g.values[s.move ? s.from : g.nodes[s.node].in[0]];
    OrderedJson j;
    j["node"] = g.nodes[s.node].name;
    j["op"] = g.nodes[s.node].op;
    j["value"] = from.name;
    j["shape"] = shape_str(s.move ? s.from_home.view.dims : from.info.shape, &g.symbol_names());
    j["reason"] = s.reason;
    list.push_back(j);
  }
  return list;
}

// How prompts are cut where the time of a step does not decide it, and why.
OrderedJson prompts_json(const Model::Impl& m) {
  const CompiledModule& module = m.in_place->module();
  const std::string& mixing = module.prompt.order.mixing;
  if (!mixing.empty()) return {{"fed", "whole"}, {"why", "by " + mixing + " tokens depend on later ones"}};
  if (module.first_only)
    return {{"fed", "whole"}, {"why", "the graph computes prompts without past, or single tokens"}};
  if (m.fixed_cuts())
    return {{"fed", "multiples of " + std::to_string(m.chunk())}, {"why", "sums of a recurrence may follow the cut"}};
  if (!m.together()) return {{"fed", "pieces of " + std::to_string(m.chunk())}, {"why", m.in_place->one_sequence()}};
  return {{"fed", "pieces of any length"}, {"why", ""}};
}

OrderedJson describe(const Model::Impl& m, int64_t budget, const std::string& saving_problem) {
  const InPlaceEngine& e = *m.in_place;
  const Graph& g = e.compiled().graph;
  OrderedJson j;
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
  for (const char* key : {"placement", "copies"}) j[key] = OrderedJson::object();
  const std::vector<ProgramFacts> programs = programs_of(e);
  for (const auto& [name, key] :
       {std::pair{"prompt", "prefill"}, {"token", "decode"}, {"encode", "encode"}, {"behind", "behind"}})
    for (const ProgramFacts& p : programs) {
      if (p.name != name || !p.plan) continue;
      j["placement"][key] = placement_json(p.compiled->graph, *p.plan);
      j["copies"][key] = copies_json(p.compiled->graph, *p.plan);
    }
  j["compiled later"] = OrderedJson::array();
  if (e.encoder() && !e.encoder()->program()) j["compiled later"].push_back("encode");
  if (const MediaWriter* media = e.media())
    for (const MediaEncoder& encoder : media->files().media) j["compiled later"].push_back(encoder.name);
  if (!e.media_problem().empty()) j["no pictures"] = e.media_problem();
  j["memory"] = memory_json(m, budget);
  j["module"] = module_json(m);
  j["sequences"] = {
      {"in one step", m.rows_of_one()}, {"single tokens in one step", m.rows()}, {"one at a time", e.one_sequence()}};
  j["prompts"] = prompts_json(m);
  const PackUse& packs = e.packs();
  j["packed weights"] = {{"packed", packs.packed_bytes},
                         {"mapped", packs.mapped_bytes},
                         {"file", packs.file},
                         {"not saved", saving_problem}};
  j["notes"] = m.folder.notes;
  j["unsupported"] = OrderedJson::array();
  j["isa"] = kernels().isa;
  return j;
}

}  // namespace

Result<std::string> inspect(const Model& model, int64_t memory) {
  Model shared = model;
  Model::Impl& m = impl_of(shared);
  SITU_RETURN_IF_ERROR(m.check_generates());
  if (!m.in_place)
    return Status::error(Code::kInvalidArgument, m.folder.model_file.string() + ": the naive mode places nothing");
  return or_out_of_memory([&]() -> Result<std::string> {
    m.in_place->finish_saving();
    const std::string problem = m.in_place->saving_problem();
    return json_text(describe(m, memory, problem));
  });
}

static OrderedJson passes_json(const CompileTraces& traces) {
  constexpr const char* kPhases[] = {"any step", "first step", "single tokens"};
  OrderedJson list = OrderedJson::array();
  for (size_t c = 0; c < traces.size(); ++c)
    for (const PassRecord& p : traces[c].passes) {
      char digest[17];
      std::snprintf(digest, sizeof(digest), "%016llx", static_cast<unsigned long long>(p.digest));
      list.push_back({{"name", p.name},
                      {"ms", p.ms},
                      {"visits", p.visits},
                      {"edits", p.edits},
                      {"nodes", p.nodes},
                      {"digest", digest},
                      {"graph", traces[c].graph},
                      {"for", traces[c].literal ? "naive mode" : kPhases[static_cast<size_t>(traces[c].phase)]},
                      {"compilation", c}});
    }
  return list;
}

PassReport inspect_passes(const std::string& path, const LoadOptions& options, int64_t memory) {
  const auto traces = std::make_shared<CompileTraces>();
  Result<Model> model = load_model(path, options, {.traces = traces});
  OrderedJson j;
  if (!model.is_ok()) {
    j = OrderedJson::parse(inspect_refused(path, options, model.status().message()));
  } else if (Model::Impl& m = impl_of(*model); m.in_place) {
    const Result<std::string> text = inspect(*model, memory);
    if (!text.is_ok()) return {text.status(), "{}"};
    j = OrderedJson::parse(*text);
  } else {
    j["file"] = m.folder.model_file.string();
  }
  j["passes"] = passes_json(*traces);
  return {model.status(), json_text(j)};
}

std::string inspect_refused(const std::string& path, const LoadOptions& options, const std::string& reason) {
  OrderedJson j{{"unsupported", OrderedJson::array({reason})}};
  const Result<ModelFolder> folder = open_model_folder(path, options.variants);
  const Result<ImportedModel> imported =
      folder.is_ok() ? import_onnx(folder->model_file) : Result<ImportedModel>(folder.status());
  if (imported.is_ok()) {
    const Graph& g = imported->graph;
    std::map<std::string, int> operators;
    for (const Node& n : g.nodes) ++operators[operator_name(n)];
    j["file"] = folder->model_file.string();
    j["producer"] = imported->producer;
    j["nodes"] = {{"in file", g.nodes.size()}};
    j["inputs"] = values_json(g, g.inputs);
    j["outputs"] = values_json(g, g.outputs);
    j["operators"] = operators;
  }
  return json_text(j);
}

}  // namespace situ
