// Facts of a program, which passes find and the runtime acts on: what its inputs are fed with, which states it has,
// where its logits are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace situ {

// How a state's output follows from its input (design.md, section 2).
//   append  - a row for each token goes behind the past ones
//   replace - the whole state is read, and written anew
//   source  - rows that another program wrote (an encoder's, or what is projected from them) and this one reads; or,
//             where there is no past, rows that this program writes
enum class StateRule { kAppend, kReplace, kSource, kPassThrough };
const char* state_rule_name(StateRule rule);

struct StatePair {
  ValueId past = kNoValue;     // graph input; none: this program only writes the state
  ValueId present = kNoValue;  // graph output; none: it only reads it
  StateRule rule = StateRule::kAppend;
  int axis = 0;           // kAppend, kSource: the axis along which rows stand
  std::string name = {};  // of the state in all programs of a module: ".0.decoder.key"
  // Whether the program touches the state at all: programs of a module have the same states in the same order.
  bool here() const { return past != kNoValue || present != kNoValue; }
};

// What each input is fed with.
enum class InputRole {
  kTokenIds,    // [1, S] token ids
  kTokenTypes,  // [1, S] or [S]: of which of a pair of texts each token is
  kPositions,   // P .. P + S - 1 along the last axis, repeated along others
  kState,       // a past tensor
  kRotaryRows,  // [1, 1, S, C], of the tokens' positions
  kFeatures,    // a tensor of the caller: an encoder's pixels or spectrogram
  kWindowMask,  // of a fixed window: zeros, then ones for the tokens that there are
  kSourceMask,  // ones for all of an encoder's input, of whatever length (literally; else they are a constant)
};

// A table of cosines or sines without an end: row p is scale * cos(p * angle) or scale * sin(p * angle).
struct RotaryRows {
  std::vector<double> angles, scales;
  bool sine = false;
  int64_t width() const { return static_cast<int64_t>(angles.size()); }
  void write(int64_t position, float* row) const;
};

// The input that says which tokens may be attended to: all ones, since nothing is padded.
struct MaskInput {
  ValueId value = kNoValue;
  bool told = false;    // by its usual name, or by the configuration
  bool unsure = false;  // its first dim may be the queries: right only where the graph hides later tokens itself
};

struct Binding {
  std::map<ValueId, InputRole> inputs;
  std::map<ValueId, RotaryRows> rotary;  // of inputs that are kRotaryRows
  MaskInput mask;
  ValueId logits = kNoValue;
  ValueId rows = kNoValue;    // embeddings that a program writes where each step says; of a decoder that looks up its
                              // own, where it does
  std::vector<ValueId> kept;  // beside the logits: values that are read after a step
  std::vector<StatePair> states;
  // Lengths at which tables become other ones for all tokens of a sequence (passes/host/find_switches.cc), ascending:
  // one with so many tokens, and with more, has others than a shorter one.
  std::vector<int64_t> switches;
  // Literally: the fewest places of a cache that steps write into in a circle: a step of several tokens must not reach
  // its own first one. 0: there is none.
  int64_t circle = 0;
};

// What recognition found, for `situ inspect`: (kind, node or value, details).
struct Finding {
  std::string kind;
  std::string where;
  std::string what;
};

// Rows that depend on the source alone: one program writes them, every step of the decoder reads them.
struct SourceRows {
  std::string name;             // of the state: ".0.encoder.key"
  std::string input;            // of `decode` and `first`
  std::string output;           // of `encode`
  int axis = 0;                 // along which the source's rows stand
  DType stored = DType::kNone;  // the type of the state that `encode` writes; kNone: that of the output
};

// Names that a side file (genai_config.json) gives to inputs and outputs; empty: the usual ones.
struct InputNames {
  std::string input_ids, attention_mask, position_ids, logits;
  std::string rows;                                              // of embeddings (Binding::rows)
  std::string past_key, past_value, present_key, present_value;  // with %d for the layer
  // Rows of GroupQueryAttention's rotary tables in front of those that sequences of more tokens than that have; 0:
  // none.
  int64_t rotary_offset = 0;
};

// Some exports hold for two kinds of step only: a first one without past, and later ones of one token.
enum class Phase { kAny, kFirst, kDecode };

}  // namespace situ
