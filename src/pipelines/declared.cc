#include "pipelines/declared.h"

#include <algorithm>

#include "runtime/encoder_input.h"

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

}  // namespace situ
