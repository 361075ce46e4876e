#include "pipelines/declared.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/encoder_input.h"
#include "text/json_file.h"

namespace situ {

void set_source_length(const Model::Impl& m, EngineOptions* engine) {
  constexpr int64_t kRowsOfArrays = 16384;  // some 6 minutes of sound
  engine->source_length = m.folder.source_length > 0 ? m.folder.source_length : m.folder.context_length;
  if (m.folder.source_length > 0 || !m.files.encoder || !takes_open_arrays(m.files.encoder->graph)) return;
  engine->counted_source = engine->source_length > 0 ? engine->source_length : m.context_length;
  engine->source_length = std::max(kRowsOfArrays, m.context_length);
}

void note_what_is_lost(Model::Impl& m, const LoadOptions& options) {
  if (!m.in_place || options.window > 0) return;
  const std::string but = ", but the graph of " + m.folder.model_file.filename().string() + " ";
  const Graph& graph = m.in_place->compiled().graph;
  const auto is_attention = [](const Node& n) { return n.is("Attention", "situ"); };
  const auto may_hide = [&](const Node& n) {
    return n.is("Softmax") || (is_attention(n) && (n.has_input(3) || n.attr_int("window", 0) > 0));
  };
  if (m.folder.window > 0 && m.folder.window < m.context_length &&
      std::any_of(graph.nodes.begin(), graph.nodes.end(), is_attention) &&
      std::none_of(graph.nodes.begin(), graph.nodes.end(), may_hide))
    m.folder.notes.push_back("config.json declares a window of " + std::to_string(m.folder.window) + " tokens" + but +
                             "has none: every token sees all before it");
  if (m.folder.long_rope > 0 && m.folder.long_rope < m.context_length && !m.in_place->switches().any())
    m.folder.notes.push_back("config.json declares other rotary factors for more than " +
                             std::to_string(m.folder.long_rope) + " tokens (long rope)" + but +
                             "has one set of them for every length");
}

namespace {

using ConfigJson = nlohmann::json;

// The object that tells of a decoder's layers, and the file that it is in.
struct Declared {
  std::string file;
  ConfigJson all = ConfigJson::object(), decoder = ConfigJson::object();

  // The first of these that is a positive number; 0: none is.
  int64_t count(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      for (const ConfigJson* object : {&decoder, &all})
        if (const auto it = object->find(key); it != object->end() && it->is_number_unsigned() && *it > 0)
          return it->get<int64_t>();
    return 0;
  }
};

Declared declared_of(const Model::Impl& m) {
  Declared d;
  const auto part = [](const ConfigJson& json, const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_object() ? *it : ConfigJson::object();
  };
  for (const char* name : {"config.json", "genai_config.json"}) {
    const Result<ConfigJson> json = read_json_object(m.folder.folder / name);
    if (!json.is_ok()) continue;
    d.file = name;
    const bool genai = std::string_view(name) == "genai_config.json";
    d.all = genai ? part(*json, "model") : *json;
    d.decoder = part(d.all, "decoder");
    if (!genai && d.decoder.empty()) d.decoder = part(d.all, "text_config");
    return d;
  }
  return d;
}

void compare(const Declared& d, int64_t declared, const char* what, int64_t found, const std::string& where,
             std::vector<std::string>* notes) {
  if (declared > 0 && found > 0 && declared != found)
    notes->push_back(d.file + " declares " + what + " " + std::to_string(declared) + ", and " + where + " has " +
                     std::to_string(found));
}

// [1, heads, P, size] of the states that a row is appended to.
void compare_heads(const Declared& d, const Model::Impl& m, std::vector<std::string>* notes) {
  const InPlaceEngine& e = *m.in_place;
  const Graph& graph = e.compiled().graph;
  const int64_t heads = d.count({"num_key_value_heads", "decoder_attention_heads", "num_attention_heads", "n_head"});
  const int64_t of_all = d.count({"num_attention_heads", "decoder_attention_heads", "n_head"}),
                width = d.count({"hidden_size", "d_model", "n_embd"});
  int64_t size = d.count({"head_dim", "head_size", "d_kv"});
  if (size == 0 && of_all > 0 && width % of_all == 0) size = width / of_all;
  int64_t pairs = 0;
  const Value* first = nullptr;
  for (const StateLayout& s : e.prefill_plan().states) {
    if (s.pair.rule != StateRule::kAppend) {
      if (s.pair.rule == StateRule::kReplace) return;  // layers of several kinds
      continue;
    }
    ++pairs;
    if (!first && s.pair.past != kNoValue) first = &graph.values[static_cast<size_t>(s.pair.past)];
  }
  if (!first || first->info.shape.size() != 4 || pairs % 2 != 0) return;
  const Shape& shape = first->info.shape;
  if (shape[1].is_const() && shape[3].is_const()) {
    compare(d, heads, "key and value heads:", shape[1].value(), "state '" + first->name + "'", notes);
    compare(d, size, "heads of size", shape[3].value(), "state '" + first->name + "'", notes);
  }
  compare(d, d.count({"decoder_layers", "num_decoder_layers", "num_hidden_layers", "num_layers", "n_layer"}),
          "layers:", pairs / 2, "the graph with its caches", notes);
}

// Whether anything is chosen by the indices of a router's TopK: rows are gathered or scattered, or a mask is made.
bool chooses(const Graph& graph) {
  std::set<ValueId> chosen;
  for (const Node& n : graph.nodes) {
    if (n.op == "MoE" || n.op == "QMoE") return true;
    if (n.is("TopK") && n.has_output(1)) chosen.insert(n.out[1]);
    const bool reads = std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return chosen.count(v) != 0; });
    if (!reads) continue;
    static const std::set<std::string> deciding{"Gather",  "GatherND",        "GatherElements", "ScatterND",
                                                "NonZero", "ScatterElements", "OneHot",         "Equal",
                                                "Where",   "Compress",        "Less",           "Greater"};
    if (deciding.count(n.op)) return true;
    chosen.insert(n.out.begin(), n.out.end());
    chosen.erase(kNoValue);
  }
  return false;
}

}  // namespace

std::vector<std::string> disagreements(const Model::Impl& m) {
  std::vector<std::string> notes;
  const Declared d = declared_of(m);
  if (d.file.empty() || !m.in_place) return notes;
  compare(d, d.count({"vocab_size"}), "a vocabulary of", m.vocabulary, "the logits", &notes);
  compare_heads(d, m, &notes);
  const int64_t experts = d.count({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"});
  if (experts > 1 && !chooses(m.files.decoder.graph))
    notes.push_back(d.file + " declares " + std::to_string(experts) +
                    " experts, and no row of the graph depends on a router: it was traced with one choice of them");
  return notes;
}

}  // namespace situ
