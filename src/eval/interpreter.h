// The interpreter runs a graph literally: every node reads tensors and makes new tensors. It is the naive
// mode (baseline and oracle), and the engine that folds constants and probes subgraphs in passes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/ledger.h"
#include "base/scratch.h"
#include "base/status.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "ops/op.h"

namespace situ {

// Where evaluation runs and what it wrote. Scratch memory for the kernels belongs to it.
// Use by one thread at a time.
class Evaluator {
 public:
  // `max_bytes`: the largest value that is made; a graph that asks for more is refused.
  explicit Evaluator(ThreadPool& pool, int64_t max_bytes = kMaxNaiveBytes);
  static constexpr int64_t kMaxNaiveBytes = int64_t{4} << 30;    // logits of a long prompt over a large vocabulary
  static constexpr int64_t kMaxProbeBytes = int64_t{256} << 20;  // a row of 131,072 keys for every head

  // Outputs of one node (absent ones are !present()). Operands: one per node input, !present() for
  // omitted ones. Reshape and its kin alias their input as a plain runtime does; Concat, Transpose,
  // Slice ... move bytes and book them.
  Result<std::vector<Tensor>> node(const Node& node, const std::vector<Tensor>& operands);

  // What a Cast makes of it; a tensor of that type is itself.
  Result<Tensor> cast(const Tensor& x, DType type);

  // Values of the graph's outputs. `feeds`: a tensor for every graph input that is needed.
  // Values are dropped after their last use, as a memory-planning runtime would.
  Result<std::vector<Tensor>> graph(const Graph& graph, const std::map<ValueId, Tensor>& feeds);

  Ledger& ledger() { return ledger_; }
  ThreadPool& pool() { return pool_; }
  // dst = src over all threads.
  void move(const View& dst, const View& src);

 private:
  Result<std::vector<Tensor>> control(const Node& node, const std::vector<Tensor>& operands);
  Status compute(const Node& node, const std::vector<Tensor>& operands, const std::vector<ValueInfo>& infos,
                 std::vector<Tensor>* outputs);

  Status allocate(const Node& node, const ValueInfo& info, Tensor* out) const;

  ThreadPool& pool_;
  const int64_t max_bytes_;
  Ledger ledger_;
  Scratch scratch_;
  std::vector<const Tensor*> live_;  // by id, while graph() runs
};

// Facts about a concrete tensor in the form that shape functions take.
ValueInfo info_of(const Tensor& tensor);
// Integer elements of operand `i` of a node, where it is there and they are known: a small constant's, or what shapes
// tell.
std::optional<std::vector<Dim>> content_of(const Graph& graph, const Node& node, size_t i);
// Integers that no step changes, however many; of an operand that is there.
std::optional<std::vector<int64_t>> fixed_integers(const Graph& graph, ValueId v);

}  // namespace situ
