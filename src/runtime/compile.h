// Compilation: imported graphs to graphs that the planner places, one for each kind of step.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "onnx/importer.h"
#include "passes/compile/pass_trace.h"
#include "passes/compile/token_order.h"
#include "passes/context/binding.h"
#include "passes/host/constants.h"
#include "passes/module/module.h"

namespace situ {

class PackStore;

// Sequences of one step at most. Beyond it a product costs as much for each row as it does in two steps.
constexpr int64_t kStepSequences = 64;
// What engines take that are made from now on; tests make their steps narrower.
class StepWidth {
 public:
  explicit StepWidth(int64_t sequences) : before_(now_) { now_ = sequences; }
  ~StepWidth() { now_ = before_; }
  StepWidth(const StepWidth&) = delete;
  StepWidth& operator=(const StepWidth&) = delete;
  static int64_t now() { return now_; }

 private:
  const int64_t before_;
  static inline int64_t now_ = kStepSequences;
};

struct EngineOptions {
  InputNames names;
  int64_t context_length = 0;  // tokens per sequence; 0: as many as the graphs hold, up to context_of()
  int64_t memory = 0;  // bytes for weights, arena, io and state; 0: states may take half of what the machine has free
  int64_t slots = 0;   // tokens of state; 0: what memory leaves
  int64_t source_length = 0;     // most rows of a source, or tokens that an encoder takes; 0: as many as the context
  int64_t counted_source = 0;    // rows of the usual one, which `memory` counts; 0: as many
  int64_t declared_context = 0;  // what the model says; recognition may look as far, whatever context is used
  int64_t chunk = 512;           // most new tokens in one step
  int64_t batch = StepWidth::now();  // most sequences whose logits one step gives; fewer where memory is short
  int64_t window = 0;                // tokens attend to the last so many, and to the `first` first ones; 0: to all
  int64_t first = 0;
  std::shared_ptr<ThreadPool> pool;  // that computes
  bool pack_cache = true;            // packed weights are taken from a file that an earlier start saved, or saved
  bool dry = false;                  // nothing will be run: no weights are packed, or looked at
  bool float_activations = false;    // graphs in half precision compute, and keep states, in float, literally too
  DType kv_type = DType::kNone;      // of attention states; kNone: what passes/lower/store_states.cc decides
  std::shared_ptr<CompileTraces> traces = nullptr;  // where passes say what they did; null: nobody asks
};
constexpr int64_t kDefaultContext = 4096;

// An encoder whose rows stand for tokens of the prompt: a picture's, a sound's.
struct MediaEncoder {
  ImportedModel model;
  std::string name;    // for errors: "vision_encoder.onnx"
  int64_t token = -1;  // id of the tokens that the rows stand for; -1: not known
  bool sound = false;  // it takes sound, not pictures
};

// It has an operator, in a branch or outside, that Situ has not.
bool lacks_operators(const Graph& graph);

// The files of a model. A decoder-only model is `decoder` alone.
struct ModelFiles {
  std::optional<ImportedModel> encoder;
  ImportedModel decoder;
  std::optional<ImportedModel> first;                  // the decoder's first call, where it is a file of its own
  std::string encoder_name, decoder_name, first_name;  // for errors
  std::optional<ImportedModel> lookup;                 // of embeddings; its graph is joined to the decoder's
  std::string lookup_name;
  std::vector<MediaEncoder> media;
  int64_t spatial_merge = 0;  // patches of a picture that become one row, along each side, for positions; 0: not known
  int64_t vision_start = -1;  // the token in front of a picture's, without which it has positions of text; -1: none

  // Calls f(model) for each, in the order of the pack cache.
  template <typename F>
  void each(F f) const {
    if (encoder) f(*encoder);
    f(decoder);
    if (first) f(*first);
    if (lookup) f(*lookup);
    for (const MediaEncoder& m : media) f(m.model);
  }
  int64_t weight_bytes() const;
};

// A graph after the passes, with what they found.
struct Compiled {
  Graph graph;
  Binding binding;
  std::vector<Finding> found;
  int64_t packed_bytes = 0;       // weights re-laid out by passes
  TokenOrder order;               // of the tokens of a step
  ValueId embeddings = kNoValue;  // that the graph looks up (InputNames::rows)
  int64_t context = 0;            // tokens that there is room for; an encoder's: of a source
  std::string bound;              // what holds no more of them; "": as many as were wanted
};

// What a graph of a module is compiled for.
struct GraphUse {
  Phase phase = Phase::kAny;
  bool encoder = false;
  std::vector<SourceRows> sources;         // that it writes or reads
  std::set<std::string> fed;               // inputs of an encoder that the caller gives as tensors
  Dim source_length = Dim::symbol(kSymE);  // of the mask that a decoder takes of its source
  std::string rows = {};                   // of an encoder of media or texts: its one output, which the caller places
  bool texts = false;                      // an encoder of whole texts (PassContext::texts)
};
// Runs the passes on a copy of the imported graph. Weights are packed into `packs`; null: literally, for the naive
// mode. Where tables or caches hold fewer tokens than context_of(), it is compiled for as many; a context that was
// asked for is refused then.
Result<Compiled> compile(const Graph& imported, const EngineOptions& options, PackStore* packs,
                         const GraphUse& use = {});

// The graphs for a prompt and for one token: one and the same where the export holds for any step, else two
// compilations, the first for steps without past only.
struct CompiledModule {
  Module module;
  Compiled prompt, token;
  bool first_only = false;  // `prompt` holds for P = 0 only
  bool one_token = false;   // so does no graph for more than one token: prompts are fed token by token
};
// Whether a graph that holds for single tokens only takes prompts token by token: a recurrence.
bool steps_by_token(const Binding& decode);
// The input of token ids, where it declares how many a step has; null: any number.
const Value* fixed_tokens(const Graph& graph, const InputNames& names);
// Whether `imported`, which became `compiled`, declares steps of one token: what it computes of more may be other
// things. A fixed window of one token is shown to be right for any number of them.
bool declares_one_token(const Graph& imported, const InputNames& names, const Compiled& compiled);
Result<CompiledModule> compile_module(const ModelFiles& files, const EngineOptions& options, PackStore* packs);
// The program that writes sources, for inputs of these extents (none: token ids). Its states are those of `decoder`.
Result<Compiled> compile_encoder(const ModelFiles& files, const EngineOptions& options, PackStore* packs,
                                 const Compiled& decoder, const std::map<std::string, std::vector<int64_t>>& fed);
// What is wrong with two files that are no calls of one decoder.
Status not_of_one_decoder(const ModelFiles& files);
ModuleFiles module_files(const ModelFiles& files, const std::map<std::string, std::vector<int64_t>>& fed);
// Why a graph whose tokens have a fixed number is refused is mostly that, whatever fails first.
Status with_fixed_tokens(const Graph& graph, const EngineOptions& options, const Status& problem);
// What `work` returns, a Status or a Result, or an error where a file makes it throw: shape arithmetic without an end,
// an operator on constants that fails, or more than there is `memory` for ("to prepare the model").
template <typename Work>
auto or_error(const std::string& memory, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const DimTooLong& e) {
    return Status::error(e.what());
  } catch (const FoldingFailed& e) {
    return Status::error(e.what());
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kNoRoom, "not enough memory " + memory);
  }
}
// What is asked for, else what the model declares, else kDefaultContext.
int64_t context_of(const EngineOptions& options);
int64_t source_length_of(const EngineOptions& options);

}  // namespace situ
