// Passes: named rewrites of the graph, run in one fixed order (pass_list.cc). After each, shapes are
// inferred again. SITU_DISABLE_PASSES=name,name switches off those that a correct program does not need.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/status.h"
#include "eval/interpreter.h"
#include "graph/graph.h"
#include "passes/module.h"

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

// Whether an input of this name tells which of several texts a token is of: zeros, the first, unless the caller gives
// it.
bool names_token_types(const std::string& input);

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
  // Lengths at which tables become other ones for all tokens of a sequence (passes/find_switches.cc), ascending: one
  // with so many tokens, and with more, has others than a shorter one.
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

class PackStore;

struct PassContext {
  Graph& graph;
  Evaluator& evaluator;
  Binding& binding;
  InputNames names;
  int64_t context_length = 0;  // tokens that the model is declared for; bounds window probes
  int64_t length = 0;          // tokens that there is room for,
  bool endless = false;        // or of which any number may pass through a window
  std::vector<Finding> found;
  Phase phase = Phase::kAny;
  // -- in a module with an encoder
  bool literal = false;                    // for the naive mode
  bool float_activations = false;          // half precision becomes float, literally too, and so do states
  bool encoder = false;                    // the graph writes the sources; it has no past and no logits
  std::vector<SourceRows> sources;         // that the graph writes (as outputs) or reads (as inputs)
  std::set<std::string> fed;               // inputs of an encoder that the caller gives as tensors
  bool texts = false;                      // an encoder of whole texts, with types of tokens, and without a past
  Dim source_length = Dim::symbol(kSymE);  // of the mask that a decoder takes of its source
  // Set by infer_shapes when it stopped at an If, whose outputs are not known before it is inlined.
  bool at_control = false;
  std::vector<std::pair<ValueId, DType>> declared_outputs;  // as the file has them
  DType kv_type = DType::kNone;  // of appended states that attention alone reads; kNone: the pass decides
  PackStore* packs = nullptr;    // where packed weights go; null: none are packed
  // Casts of stored weights are not folded yet: passes may still find that they are read as they are stored.
  bool weights_as_stored = false;
  int64_t stored_bytes = 0,
          folded_bytes = 0;           // of the file's constants, and of those that infer_shapes made and that are read
  std::map<ValueId, int64_t> folded;  // bytes of all that it made
  // Of a graph in which infer_shapes, when it was last called, found nothing to change: a pass that leaves the graph as
  // it is need not have it called again.
  std::optional<uint64_t> settled;
  bool half_values = false;  // set by widen_half: the file computes in half precision, somewhere
  // Set by widen_half: constants, and what is made of constants alone, that the file has in half precision, and in
  // which.
  std::map<ValueId, DType> rounded;
  // Called by infer_shapes for each node before its shapes are inferred: may replace operands. Empty: nothing is.
  std::function<void(Node&)> before_infer;
  // Contexts, shorter than this one, that the graph may hold, and what would bound them: for who compiles again.
  std::map<int64_t, std::string> holds = {};
  // Set by bind_inputs: inputs whose number only their readers tell (the place of a cache that a step writes to).
  std::vector<ValueId> told_by_use = {};
  int64_t lifted = 0;  // set by lift_extents: tokens of the file's steps, whose extents were numbers; 0: they were not
  // A step that subgraphs are probed at: S, P and T = P + S all differ where the phase lets them.
  int64_t probe_tokens() const { return phase == Phase::kDecode ? 1 : 2; }
  int64_t probe_past() const { return phase == Phase::kFirst ? 0 : 3; }

  void note(std::string kind, std::string where, std::string what) {
    found.push_back({std::move(kind), std::move(where), std::move(what)});
  }
};

enum class PassUse {
  kAlways,    // also in naive mode
  kPlaced,    // what a placed program needs; naive mode runs without
  kOptional,  // may be switched off by SITU_DISABLE_PASSES
};
struct Pass {
  const char* name;
  Status (*run)(PassContext&);
  PassUse use;
  Reason::Kind refuses = Reason::Kind::kShape;  // what an error of it is about that says nothing of that itself
};

// All passes in order.
const std::vector<Pass>& pass_list();
// Runs passes in order. `literal`: only those that the naive mode needs (inputs bound, fused operators
// expanded, states found), nothing that changes how values are computed.
Status run_passes(PassContext& context, bool literal);

// -- the passes, one file each
Status lift_extents(PassContext&);          // fixed windows: extents that are numbers become symbols
Status ungroup_products(PassContext&);      // rows sorted by expert: products with the matrix of each row
Status bind_inputs(PassContext&);           // symbols for batch, new tokens, past; constant inputs
Status expand_fused(PassContext&);          // contrib and opset 23+ attention, rotary, skip norms
Status expand_experts(PassContext&);        // contrib mixtures of experts
Status recognise_experts(PassContext&);     // loops over experts: NonZero of a router's choice
Status unsort_rows(PassContext&);           // rows that are sorted by expert, and put back
Status choose_experts(PassContext&);        // experts that compute every row: those that were chosen
Status fold_extents(PassContext&);          // of an encoder: Shape of what has known extents
Status check_mask(PassContext&);            // ones in the attention mask hide nothing, and a zero hides a key
Status read_stacks(PassContext&);           // parts of values that are stacked: those values
Status unstack_states(PassContext&);        // states stacked in one tensor: each of its own
Status lift_caches(PassContext&);           // caches of a fixed size, written at positions: rows are appended
Status round_states(PassContext&);          // states that are rounded as a whole: rows that are rounded once
Status find_states(PassContext&);           // past / present pairs from what the outputs are made of
Status find_logits(PassContext&);           // the output as wide as the table that token ids index
Status find_switches(PassContext&);         // tables that follow the length of the whole: a long rope's factors
Status integer_states(PassContext&);        // states of quantised rows, as attention reads them
Status narrow_states(PassContext&);         // states that are cast on their way in and out: the cast moves inside
Status widen_half(PassContext&);            // half-precision activations in float; weights and states stay half
Status inline_control(PassContext&);        // If on a known predicate
Status simplify(PassContext&);              // identities, no-op casts, expands and reshapes; dead nodes
Status fuse_dequantize(PassContext&);       // DequantizeLinear of a weight into its MatMul
Status fuse_integer(PassContext&);          // DynamicQuantizeLinear and MatMulInteger: rounded rows and their products
Status fuse_rounding(PassContext&);         // QuantizeLinear and DequantizeLinear behind it: one elementwise operator
Status sink_repeats(PassContext&);          // unary operators above the repetition they read
Status computed_positions(PassContext&);    // positions counted in the mask: fed by the host
Status settle_choices(PassContext&);        // choices of the host that are the same at every step
Status recognise_functions(PassContext&);   // norms and activations, by probing
Status recognise_rotary(PassContext&);      // rotary embeddings, by probing
Status simplify_rotary(PassContext&);       // parts, orders and repetitions around rotary embeddings
Status unrepeat_states(PassContext&);       // heads that are repeated before they are cached: cached once
Status append_windows(PassContext&);        // states that are the last rows, of convolutions: rows are appended
Status recognise_attention(PassContext&);   // Softmax outwards; masks, ALiBi, repeat_kv by probing
Status recognise_recurrence(PassContext&);  // states that are read and written by plain operators, by probing
Status order_single_tokens(PassContext&);   // attention of a fixed window of one token sees no later one
Status split_products(PassContext&);        // products on repetitions that were merged with other axes, as heads are
Status push_selections(PassContext&);       // Slice/Split/Gather above the projection they select from
Status last_token(PassContext&);            // logits of the last tokens only
Status join_parts(PassContext&);            // parts that were taken apart, or are cut alike
Status spread_repeats(PassContext&);        // elementwise operators on repetitions that were merged with other axes
Status pack_weights(PassContext&);          // quantised weights in the order in which they are read
Status pack_integer(PassContext&);          // weights of integer products, and what stands behind these
Status pack_dense(PassContext&);            // float weights in panels of columns
Status pack_experts(PassContext&);          // weights of experts, as one matrix
Status fuse_matmuls(PassContext&);          // gates, norms and residuals into packed products
Status store_states(PassContext&);          // the element type of attention states
Status fuse_casts(PassContext&);            // casts to half precision into the kernels that write for them
Status join_products(PassContext&);         // packed products of the same rows into one call
Status split_axes(PassContext&);            // rows that are joined in another order: written so
Status distribute_concat(PassContext&);     // elementwise operators above the Concat they read

// After the passes, where the number of threads is known: attention gets a second output, a workspace in which they
// share the keys of single tokens, of which one attends to up to `keys`; a step has up to `tokens` of them.
void add_attention_workspaces(Graph& graph, int threads, int64_t keys, int64_t tokens);
// That output; kNoValue: the node has none.
ValueId attention_workspace(const Node& node);
// For sequences without an end, of which the last `window` tokens and `first` first ones are attended to: after the
// passes. Attention takes no others, and rotary tables become rows that the host computes. Errors name what needs the
// whole sequence.
Status limit_window(PassContext& context, int64_t window, int64_t first);
// Whether tables have a row for each position; before weights are packed, or behind limit_window.
Status check_positions(PassContext&);
// Whether states of a fixed size that are written at the tokens' positions have a place for each; before weights are
// packed.
Status check_caches(PassContext&);
// The error of both: a context of `length` tokens does not fit.
Status no_room(const PassContext& context, int64_t length, const std::string& why);
// The most tokens, up to `most`, of which `holds` is true, if it is true of all fewer ones too; 0: of none.
int64_t most_that(int64_t most, const std::function<bool(int64_t tokens)>& holds);
// Constants at odd addresses become copies at even ones: all, or all but those that pack_dense may lay out. `packs`
// shares copies between programs; null: each gets its own.
void align_constants(Graph& graph, PackStore* packs, bool all);
// After the passes: what becomes of the tokens of one step.
struct TokenOrder {
  std::string mixing;  // the first node whose result for a token depends on later tokens of the step (label); "": none
  // Whether the tokens may be of several sequences, in order: most nodes take them one by one; some want one sequence
  // at a time.
  std::vector<char> by_sequence;  // by node
  std::string one_sequence;       // why they may not; "": they may
  // The first node that may compute across the tokens of a step as a recurrence does, from states that are replaced and
  // from the step's own tokens: right for any parts of a prompt if what a prompt gives in parts says so
  // (same_in_parts). "": none.
  std::string recurrence = {};
  int64_t reach = 0;  // of `recurrence`: what it computes may be another in steps beyond so many tokens
};
TokenOrder token_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase, int64_t context);
// Of an encoder of whole texts: `mixing` tells a decoder, whose tokens see no later ones. Where one_sequence is empty
// several texts may share a step: what computes across tokens is called for one text after the other.
TokenOrder text_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, int64_t context);
// SITU_DISABLE_PASSES names `name` or all.
bool pass_disabled(const std::string& name);
// It names passes that can be switched off: a misspelt one would switch nothing off.
Status check_disabled_names();

// The operand that output 0 of a node equals, for nodes that change nothing (Identity, reshapes to the same shape,
// times 1 ..); else kNoValue.
ValueId equal_operand(const Graph& graph, const Node& n);

// A Slice with a negative step, or with steps that are not known.
bool walks_back(const Graph& graph, const Node& n);

// Thrown where an operator on constants fails: at once, or when a constant that it makes is first looked at
// (Tensor::deferred). The engine catches it.
struct FoldingFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The results of an operator on constants, whose pages of the file are let go. Throws FoldingFailed.
std::vector<Tensor> computed_results(const PassContext& context, Evaluator& evaluator, const Node& node,
                                     const std::vector<Tensor>& operands);
// A constant of `dims` that is computed of others when it is first looked at, which nobody does where a model is only
// asked whether it can be run. What `compute` throws is thrown there. The context must live as long.
Tensor computed_later(PassContext& context, const std::vector<Tensor>& operands, DType type,
                      const std::vector<int64_t>& dims,
                      std::function<Tensor(const std::vector<Tensor>& operands)> compute);
// The same of one result of an operator: FoldingFailed is thrown.
Tensor deferred_result(PassContext& context, const Node& node, size_t output, const std::vector<Tensor>& operands,
                       DType type, const std::vector<int64_t>& dims);

// Types, shapes and small integer contents of every value; folds nodes whose operands are constants.
// Errors name the node. Called after every pass.
Status infer_shapes(PassContext&);
// Elements of the outputs of `node` on symbols, where the node is integer arithmetic or movement.
// Sets infos[i].content for the outputs it can tell. `context`: of a graph whose inputs are bound.
void infer_content(const Graph& graph, const Node& node, Evaluator& evaluator, std::vector<ValueInfo>& infos,
                   const PassContext* context = nullptr);

}  // namespace situ
