#include "pipelines/inspect_module.h"

#include <map>

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

std::string stem(const std::string& file) { return std::filesystem::path(file).stem().string(); }

Json graphs_json(const Model::Impl& m) {
  Json list = Json::array();
  const auto add = [&](const std::filesystem::path& file) {
    if (!file.empty()) list.push_back({{"name", stem(file.string())}, {"file", file.string()}});
  };
  add(m.folder.lookup_file);
  for (const std::filesystem::path& file : m.folder.media_files) add(file);
  add(m.folder.encoder_file);
  add(m.folder.model_file);
  add(m.folder.first_file);
  return list;
}

Json programs_json(const Model::Impl& m) {
  const InPlaceEngine& e = *m.in_place;
  const Module& module = e.module().module;
  const std::string decoder = stem(m.folder.model_file.string());
  Json list = Json::array();
  const auto add = [&](const char* name, const std::string& graph, Json assignment, int64_t calls, int64_t arena) {
    list.push_back({{"name", name},
                    {"graph", graph},
                    {"assignment", std::move(assignment)},
                    {"kernel_calls", calls},
                    {"arena_bytes", arena}});
  };
  const auto flag = [&](bool first) {
    Json values = Json::object();
    if (!module.flag.empty()) values[module.flag] = first ? "first" : "cached";
    return values;
  };
  if (const SourceWriter* encoder = e.encoder()) {
    const Plan* plan = encoder->plan();
    const bool crosses = std::any_of(module.sources.begin(), module.sources.end(),
                                     [&](const SourceRows& s) { return s.input != module.hidden; });
    Json values = flag(true);
    values["P"] = 0;
    add("encode",
        stem(m.folder.encoder_file.string()) +
            (crosses ? " + " + stem((m.folder.first_file.empty() ? m.folder.model_file : m.folder.first_file).string())
                     : ""),
        values, encoder->kernel_calls(), plan ? plan->arena_bytes : 0);
  }
  Json prompt = flag(e.module().first_only);
  if (e.module().first_only) prompt["P"] = 0;
  add("prompt", decoder, prompt, e.prompt_kernel_calls(), e.prefill_plan().arena_bytes);
  Json token = flag(false);
  token["S"] = 1;
  add("token", decoder, token, e.kernel_calls(), e.decode_plan().arena_bytes);
  if (const MediaWriter* media = e.media()) {
    add("lookup", stem(m.folder.lookup_file.string()), Json::object(), media->lookup_kernel_calls(),
        media->lookup_plan().arena_bytes);
    add("behind", decoder, Json::object(), e.behind_kernel_calls(), e.behind_plan().arena_bytes);
    for (size_t i = 0; i < m.files.media.size(); ++i) {
      const MediaWriter::Entry* entry = media->newest(i);
      add(stem(m.files.media[i].name).c_str(), stem(m.files.media[i].name), Json::object(),
          entry && entry->program ? entry->program->kernel_calls() : 0, entry ? entry->plan.arena_bytes : 0);
    }
  }
  return list;
}

Json spaces_json(const InPlaceEngine& e) {
  Json list = Json::array();
  const std::pair<SpaceKind, const char*> kinds[] = {{SpaceKind::kAppend, "bytes_per_token"},
                                                     {SpaceKind::kSource, "bytes_per_source_row"},
                                                     {SpaceKind::kWhole, "bytes_per_sequence"}};
  for (const auto& [kind, bytes] : kinds) {
    const StatePool& states = e.states();
    if (states.slot_bytes(kind) == 0) continue;
    list.push_back({{"name", kind == SpaceKind::kAppend   ? "self"
                             : kind == SpaceKind::kSource ? "cross"
                                                          : "recurrent"},
                    {"kind", space_name(kind)},
                    {bytes, states.slot_bytes(kind)},
                    {"slots", states.space(kind).capacity()}});
  }
  return list;
}

// Blocks that the host writes or reads in a step, and tensors of the caller.
Json ports_json(const InPlaceEngine& e) {
  std::map<std::string, Json> ports;  // by name
  const auto add = [&](const char* program, const Compiled& c, const Plan& plan) {
    for (const std::vector<Root>* roots : {&plan.io, &plan.ports})
      for (const Root& r : *roots) {
        const Value& v = c.graph.values[r.value];
        const bool logits = r.value == c.binding.logits;
        if (!logits && !c.binding.inputs.count(r.value)) continue;  // integers that shapes tell
        Json& port = ports[v.name];
        if (port.is_null())
          port = {{"name", v.name}, {"writer", logits ? program : "host"}, {"readers", Json::array()}, {"bytes", 0}};
        port["bytes"] = std::max(port["bytes"].get<int64_t>(), r.bytes);
        const std::string reader = logits ? "host" : program;
        if (std::find(port["readers"].begin(), port["readers"].end(), reader) == port["readers"].end())
          port["readers"].push_back(reader);
      }
  };
  if (e.encoder() && e.encoder()->plan()) add("encode", *e.encoder()->compiled(), *e.encoder()->plan());
  add("prompt", e.compiled(), e.prefill_plan());
  add("token", e.module().token, e.decode_plan());
  if (const MediaWriter* media = e.media()) {
    const Plan& plan = e.behind_plan();
    for (const Root& r : plan.ports) {
      const Value& v = e.cut().decoder.graph.values[r.value];
      if (v.producer >= 0) continue;
      std::string writer = "lookup";
      for (const MediaEncoder& encoder : media->files().media) writer += ", " + stem(encoder.name);
      ports[v.name] = {{"name", v.name}, {"writer", writer}, {"readers", {"behind"}}, {"bytes", r.bytes}};
    }
  }
  Json list = Json::array();
  for (auto& [name, port] : ports) list.push_back(std::move(port));
  return list;
}

}  // namespace

Json module_json(const Model::Impl& m) {
  return {{"graphs", graphs_json(m)},
          {"programs", programs_json(m)},
          {"spaces", spaces_json(*m.in_place)},
          {"ports", ports_json(*m.in_place)}};
}

}  // namespace situ
