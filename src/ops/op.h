// What the compiler knows of an operator: how its outputs' types and shapes follow from its inputs,
// where its outputs may live, and which kernel computes them. One line per operator in ops.inc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"
#include "kernels/kernel.h"

namespace situ {

// A view whose offset, extents and strides may depend on symbols. Units: elements.
struct SymView {
  Dim offset = 0;
  Shape dims;
  std::vector<Dim> strides;

  static SymView contiguous(const Shape& dims);
};

// Where an operator's outputs can live.
enum class Placement {
  kCompute,      // new values: written by the kernel into the destination it is given
  kElementwise,  // kCompute; element i of the output depends on element i of the (broadcast) operands alone, so that
                 // output 0 may overwrite an input of the same type, dims and strides
  kRowwise,      // the same, but whole rows depend on whole rows: norms, softmax
  kUpdate,   // kCompute; output 0 is operand 0 but for some elements, and may overwrite that operand alone: scatters
  kAddsTo,   // kCompute; output 0 is a sum with operand 3, element by element, and may overwrite that operand alone:
             // products with a residual
  kView,     // output is a view of input 0 (see OpDef::view)
  kConcat,   // inputs are slices of output 0 along attribute `axis`
  kHost,     // integer arithmetic on shapes; a kernel exists for when it is not
  kControl,  // If, Loop, Scan
};

constexpr bool may_overwrite(Placement p, size_t operand) {
  return p == Placement::kElementwise || p == Placement::kRowwise || (p == Placement::kUpdate && operand == 0) ||
         (p == Placement::kAddsTo && operand == 3);
}

// What a shape function takes for granted because symbols do not tell: `a` <= `b`, or `a` == `b`. Holds
// for every step that the model is valid for, and is checked before each one.
struct Assumption {
  Dim a, b;
  bool equal = false;
  std::string why;  // "Slice '/model/Slice_3': end S + P within 1024"
};

// Shape inference of one node. The same functions serve the compiler (symbolic Dims) and the naive
// interpreter (constant Dims, contents read from the actual tensors).
struct InferContext {
  const Node& node;
  std::vector<const ValueInfo*> in;      // nullptr: omitted operand
  std::vector<const Tensor*> constants;  // value of operand i when known, else nullptr
  std::vector<ValueInfo>& out;           // one per node output; infer sets type, ranked and shape
  // Where assumptions go; null: none may be made, and what needs one is an error.
  std::vector<Assumption>* assumptions = nullptr;

  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  const ValueInfo& input(size_t i) const { return *in[i]; }
  // The elements of small integer operand i, from its constant or symbolic content; nothing if unknown.
  std::optional<std::vector<Dim>> content(size_t i) const;
  // The same when all elements are constants.
  std::optional<std::vector<int64_t>> content_i64(size_t i) const;
  void set(size_t i, DType type, Shape shape);
  // Error "input 1 (axes): ..." helpers. `what` says what is wrong, with both values.
  Status fail(const std::string& what) const { return node.error(what); }
  // Fails unless operand i exists and its rank is known and <= kMaxRank.
  Status need(size_t i, const char* operand) const;
};

// What prepare decides for one node.
struct Prepared {
  KernelFn KernelTable::* kernel = nullptr;
  std::shared_ptr<const void> params;  // a struct of kernels/params.h, or null
};

struct PrepareContext {
  const Node& node;
  std::vector<const ValueInfo*> in;      // nullptr: omitted operand
  std::vector<const Tensor*> constants;  // nullptr: not constant
  std::vector<const ValueInfo*> out;

  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  Status fail(const std::string& what) const { return node.error(what, Reason::Kind::kOperator); }
};

struct ViewContext {
  const Node& node;
  std::vector<const ValueInfo*> in;
  std::vector<const Tensor*> constants;
  std::vector<const ValueInfo*> out;
  SymView source;               // where input 0 lives
  std::vector<SymView> result;  // one per output, set by OpDef::view

  std::optional<std::vector<int64_t>> content_i64(size_t i) const;
  std::optional<std::vector<Dim>> content(size_t i) const;
};

struct OpDef {
  const char* domain;
  const char* name;
  int since;  // first opset version of `domain` with this signature that Situ implements
  Placement placement;
  Status (*infer)(InferContext&);
  // Chooses the kernel and fills its parameters; refuses types and attributes that no kernel covers.
  // For kView and kConcat ops: null; they are moved by move_bytes when they cannot be placed.
  Status (*prepare)(const PrepareContext&, Prepared*);
  // kView only: sets `result`. False: cannot be expressed as strides over `source` (a Reshape of a
  // transposed tensor); the planner then tries another layout or makes the copy visible.
  bool (*view)(ViewContext&);
};

// The definition for a node (newest `since` <= node.opset), or nullptr.
const OpDef* find_op(const std::string& domain, const std::string& name, int opset);
// True when some opset version of the operator is known (for the message).
bool op_name_known(const std::string& domain, const std::string& name);
// Sets Node::def on every node, also in subgraphs. Error: the full list of operators that are missing,
// with domain, opset, how often and an example node for each; of flags that are neither 0 nor 1; and where all nodes
// are as a file has them, of attributes and operands that are not known (known.h).
enum class NodesOf { kPasses, kFile };
Status resolve_ops(Graph& graph, NodesOf nodes = NodesOf::kPasses);
// Leaves out what operators need not give and nothing reads, also in subgraphs: the mask of a Dropout, the statistics
// of a norm, the present of an attention over another one's cache.
void leave_out_unread(Graph& graph);
// All operators, for documentation and tests.
std::vector<const OpDef*> all_ops();

// `source` under other dims (same count) without moving elements; false: no strides do that.
bool reshape_view(const SymView& source, const Shape& dims, SymView* result);

// Helpers shared by shape functions.
// Negative axes count from the end. Error when out of [-rank, rank).
Result<int> normalize_axis(int64_t axis, int rank);

}  // namespace situ
