// A module: the graphs of a model folder, and what they share. bind_module finds from what the graphs compute which
// graph writes what another one reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "graph/graph.h"
#include "passes/context/binding.h"
#include "passes/module/specialise.h"

namespace situ {

// The files of a model as they are imported. A decoder is one graph, or two: `first` (without past) and `decoder`.
struct ModuleFiles {
  std::string encoder_name, decoder_name, first_name;  // for errors: "decoder_model_merged.onnx"
  const Graph* encoder = nullptr;
  const Graph* decoder = nullptr;
  const Graph* first = nullptr;
  // Assigned before all else: the extents of arrays that the caller feeds to the encoder.
  std::map<std::string, std::vector<int64_t>> fed;  // by name of the encoder's input
};

struct Module {
  // -- programs in place
  std::optional<Graph> encode;  // the encoder, and what the decoder makes of its output alone; none: decoder-only
  Graph decode;                 // the cached branch
  std::optional<Graph> first;   // what holds without past; none: the graph has one branch, or the file no other
  std::vector<SourceRows> sources;
  // -- the same graphs as a host would run them
  std::optional<Graph> encoder, literal_first;  // literal_first also writes the sources
  Graph literal_decode;
  std::string encoder_output;  // that the decoder takes
  std::string hidden;          // input of the decoder that takes it; "": none does
  std::string flag;            // that chooses between first and cached; "": none
  // Tokens or frames of the encoder's input, for a source of E rows: what the decoder's mask of the source is as long
  // as. E, where the encoder makes a row of each.
  Dim source_length = Dim::symbol(kSymE);

  bool has_encoder() const { return encode.has_value(); }
};

// Errors: a flag whose meaning nothing tells, a source that nothing writes or that depends on the decoder's tokens, an
// encoder of another width than the decoder takes; they name files, inputs and shapes.
Result<Module> bind_module(const ModuleFiles& files, Evaluator& evaluator);

// The extent of the mask that an encoder of arrays takes: tokens or frames of its input. None: it takes ids, or no
// mask.
std::optional<Dim> masked_length(const Graph& encoder);

// How many frames of the encoder's input (masked_length) a source of E rows is made of: the fewest. [B, F, ..] -> [B,
// E, C] with E = f(F): a*E + b, proved by f(a*E + b) == E. E, where f is no such function or the encoder has no mask.
// `output`: the encoder's rows. f is a guess where data chooses among rows on the way: who knows F and E checks them.
Dim source_length(const Graph& encoder, const std::string& output, Evaluator& evaluator);

// The shapes of `outputs`, as far as the graph tells them: without rank where it does not.
std::vector<ValueInfo> shapes_of(const Graph& graph, const std::vector<std::string>& outputs, Evaluator& evaluator);

// "present.0.key" and "past_key_values.0.key" -> ".0.key"; "" when the name does not look like a state.
std::string state_suffix(const std::string& name);

}  // namespace situ
