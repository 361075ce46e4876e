#include "pipelines/inspect_module.h"

#include <algorithm>
#include <map>

#include "pipelines/inspect_program.h"

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string stem(const std::string& file) { return std::filesystem::path(file).stem().string(); }

OrderedJson graphs_json(const Model::Impl& m) {
  OrderedJson list = OrderedJson::array();
  const auto add = [&](const std::filesystem::path& file) {
    if (!file.empty()) list.push_back({{"name", stem(file.string())}, {"file", file.string()}});
  };
  add(m.folder.lookup_file);
  for (const MediaFile& media : m.folder.media_files) add(media.file);
  add(m.folder.encoder_file);
  add(m.folder.model_file);
  add(m.folder.first_file);
  return list;
}

// What a program does in a step: its calls, and the blocks of its arena.
OrderedJson program_json(const ProgramFacts& p, const std::string& graph, OrderedJson assignment) {
  OrderedJson j{{"name", p.name},
                {"graph", graph},
                {"assignment", std::move(assignment)},
                {"kernel_calls", p.kernel_calls},
                {"arena_bytes", p.plan ? p.plan->arena_bytes : 0},
                {"block_bytes", 0},
                {"blocks", OrderedJson::array()},
                {"calls", OrderedJson::array()}};
  if (!p.plan) return j;
  j["blocks"] = blocks_json(p.compiled->graph, *p.plan);
  j["calls"] = calls_json(p.compiled->graph, *p.plan);
  int64_t sum = 0;
  for (const OrderedJson& block : j["blocks"]) sum += block["bytes"].get<int64_t>();
  j["block_bytes"] = sum;
  return j;
}

OrderedJson programs_json(const Model::Impl& m) {
  const InPlaceEngine& e = *m.in_place;
  const Module& module = e.module().module;
  const std::string decoder = stem(m.folder.model_file.string()),
                    first = stem((m.folder.first_file.empty() ? m.folder.model_file : m.folder.first_file).string());
  const auto flag = [&](bool first) {
    OrderedJson values = OrderedJson::object();
    if (!module.flag.empty()) values[module.flag] = first ? "first" : "cached";
    return values;
  };
  OrderedJson encode = flag(true), prompt = flag(e.module().first_only), token = flag(false);
  encode["P"] = 0;
  if (e.module().first_only) prompt["P"] = 0;
  token["S"] = 1;
  const bool crosses = std::any_of(module.sources.begin(), module.sources.end(),
                                   [&](const SourceRows& s) { return s.input != module.hidden; });
  const std::string writer = stem(m.folder.encoder_file.string()) + (crosses ? " + " + first : "");
  OrderedJson list = OrderedJson::array();
  for (const ProgramFacts& p : programs_of(e))
    list.push_back(p.name == "encode"   ? program_json(p, writer, encode)
                   : p.name == "prompt" ? program_json(p, e.module().first_only ? first : decoder, prompt)
                   : p.name == "token"  ? program_json(p, decoder, token)
                   : p.name == "lookup" ? program_json(p, stem(m.folder.lookup_file.string()), OrderedJson::object())
                   : p.name == "behind" ? program_json(p, decoder, OrderedJson::object())
                                        : program_json(p, p.name, OrderedJson::object()));
  return list;
}

// Names of the programs that write states of a space, or read them.
OrderedJson users_json(const std::vector<ProgramFacts>& programs, SpaceKind kind, bool writers) {
  OrderedJson list = OrderedJson::array();
  for (const ProgramFacts& p : programs)
    if (p.plan && std::any_of(p.plan->states.begin(), p.plan->states.end(), [&](const StateLayout& s) {
          return space_of(s.pair.rule) == kind && (writers ? s.pair.present : s.pair.past) != kNoValue;
        }))
      list.push_back(p.name);
  return list;
}

OrderedJson spaces_json(const InPlaceEngine& e) {
  OrderedJson list = OrderedJson::array();
  const std::vector<ProgramFacts> programs = programs_of(e);
  const std::pair<SpaceKind, const char*> kinds[] = {{SpaceKind::kAppend, "bytes_per_token"},
                                                     {SpaceKind::kSource, "bytes_per_source_row"},
                                                     {SpaceKind::kWhole, "bytes_per_sequence"}};
  const auto slots_of = [&](SpaceKind kind) {  // of one sequence
    return kind == SpaceKind::kAppend   ? e.context()
           : kind == SpaceKind::kSource ? e.encoder()->counted_rows()
                                        : kWholeSlotsPerSequence;
  };
  for (const auto& [kind, bytes] : kinds) {
    const StatePool& states = e.states();
    if (states.slot_bytes(kind) == 0) continue;
    list.push_back({{"name", kind == SpaceKind::kAppend   ? "self"
                             : kind == SpaceKind::kSource ? "cross"
                                                          : "recurrent"},
                    {"kind", space_name(kind)},
                    {bytes, states.slot_bytes(kind)},
                    {"slots", slots_of(kind)},
                    {"bytes", states.slot_bytes(kind) * slots_of(kind)},
                    {"writers", users_json(programs, kind, true)},
                    {"readers", users_json(programs, kind, false)}});
  }
  return list;
}

// Blocks that the host writes or reads in a step, and tensors of the caller.
OrderedJson ports_json(const InPlaceEngine& e) {
  std::map<std::string, OrderedJson> ports;  // by name
  const auto add = [&](const std::string& program, const Compiled& c, const Plan& plan) {
    for (const std::vector<Root>* roots : {&plan.io, &plan.ports})
      for (const Root& r : *roots) {
        const Value& v = c.graph.values[r.value];
        const bool logits = r.value == c.binding.logits;
        if (!logits && !c.binding.inputs.count(r.value)) continue;  // integers that shapes tell
        OrderedJson& port = ports[v.name];
        if (port.is_null())
          port = {
              {"name", v.name}, {"writer", logits ? program : "host"}, {"readers", OrderedJson::array()}, {"bytes", 0}};
        port["bytes"] = std::max(port["bytes"].get<int64_t>(), r.bytes);
        const std::string reader = logits ? "host" : program;
        if (std::find(port["readers"].begin(), port["readers"].end(), reader) == port["readers"].end())
          port["readers"].push_back(reader);
      }
  };
  for (const ProgramFacts& p : programs_of(e))
    if (p.plan) add(p.name, *p.compiled, *p.plan);
  if (const MediaWriter* media = e.media()) {
    std::string writer = "lookup";
    for (const MediaEncoder& encoder : media->files().media) writer += ", " + stem(encoder.name);
    ports[e.cut().decoder.graph.values[e.cut().decoder.embeddings].name]["writer"] = writer;
  }
  OrderedJson list = OrderedJson::array();
  for (auto& [name, port] : ports) list.push_back(std::move(port));
  return list;
}

}  // namespace

OrderedJson states_json(const InPlaceEngine& e) {
  OrderedJson list = OrderedJson::array();
  for (const StateLayout& s : e.prefill_plan().states) {
    const Graph& g = e.compiled().graph;
    OrderedJson j;
    if (!s.pair.here()) continue;
    if (s.pair.past != kNoValue) j["past"] = g.values[s.pair.past].name;
    if (s.pair.present != kNoValue) j["present"] = g.values[s.pair.present].name;
    j["rule"] = state_rule_name(s.pair.rule);
    j["type"] = dtype_name(s.type);
    j["shape"] =
        shape_str(g.values[s.pair.past != kNoValue ? s.pair.past : s.pair.present].info.shape, &g.symbol_names());
    if (!s.encoding.plain()) j["encoding"] = s.encoding.str();
    if (s.pair.rule != StateRule::kReplace) j["axis"] = s.pair.axis;
    j[s.pair.rule == StateRule::kAppend   ? "bytes_per_token"
      : s.pair.rule == StateRule::kSource ? "bytes_per_source_row"
                                          : "bytes"] = s.slot_bytes();
    list.push_back(j);
  }
  return list;
}

OrderedJson found_json(const Compiled& c) {
  OrderedJson list = OrderedJson::array();
  for (const Finding& f : c.found) list.push_back({{"kind", f.kind}, {"where", f.where}, {"what", f.what}});
  return list;
}

OrderedJson program_json(const ProgramFacts& p) { return program_json(p, p.name, OrderedJson::object()); }

std::vector<ProgramFacts> programs_of(const InPlaceEngine& e) {
  std::vector<ProgramFacts> programs;
  const auto add_encoder = [&](const std::string& name, std::shared_ptr<const EncoderProgram> p) {
    if (!p)
      programs.push_back({name});
    else
      programs.push_back({name, &p->compiled, &p->plan, p->kernel_calls(), p});
  };
  if (const SourceWriter* encoder = e.encoder()) add_encoder("encode", encoder->program());
  programs.push_back({"prompt", &e.compiled(), &e.prefill_plan(), e.prompt_kernel_calls()});
  programs.push_back({"token", &e.module().token, &e.decode_plan(), e.kernel_calls()});
  const MediaWriter* media = e.media();
  if (!media) return programs;
  programs.push_back({"lookup", &media->lookup(), &media->lookup_plan(), media->lookup_kernel_calls()});
  programs.push_back({"behind", &e.cut().decoder, &e.behind_plan(), e.behind_kernel_calls()});
  for (size_t i = 0; i < media->files().media.size(); ++i) {
    const auto entry = media->newest(i);
    add_encoder(stem(media->files().media[i].name), entry && entry->program ? entry : nullptr);
  }
  return programs;
}

OrderedJson module_json(const Model::Impl& m) {
  return {{"graphs", graphs_json(m)},
          {"programs", programs_json(m)},
          {"spaces", spaces_json(*m.in_place)},
          {"ports", ports_json(*m.in_place)}};
}

}  // namespace situ
